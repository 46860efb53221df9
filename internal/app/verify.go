package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/kafkaconn"
	"github.com/outboxd/outboxd/internal/verify"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/transform"
)

// Verification says what to verify.
type Verification struct {
	Since, Until time.Time // of the rows; zero: no bound
	FromID, ToID string    // of the rows
	ID           string    // where a record's id is: header:NAME or json:$.path; "": where outboxd puts it
	Against      string    // prefix of the topics of another relay, which are compared with our own instead
	DeadLetter   string    // topic of parked events; "": none
	Dir          string    // for temporary files; "": the system's

	Example func(verify.Example) error
	// Progress is called now and then: what is being read, how much of how much; of=0: not known.
	Progress func(what string, done, of int64)
}

// Verify compares outbox rows, or with Against the topics of a relay, with what is in topics.
func Verify(ctx context.Context, c *config.Config, v Verification, log *zap.Logger) (verify.Report, error) {
	if c.Sink != "kafka" {
		return verify.Report{}, fault.Config(fault.CodeConfig, "Set OUTBOXD_SINK=kafka and OUTBOXD_KAFKA_BROKERS.", nil, "verify compares with topics of Kafka, and the sink is %s", c.Sink)
	}
	where := v.ID
	if where == "" {
		var err error
		if where, err = idOf(c.Event); err != nil {
			return verify.Report{}, err
		}
	}
	id, err := verify.ParseID(where)
	if err != nil {
		return verify.Report{}, fault.Config(fault.CodeConfig, "Give it as header:NAME or json:$.path.", nil, "--id %s %v", where, err)
	}
	run := verifying{Verification: v, cfg: c, log: log, idOf: id, strip: strips(c.Event), conn: kafkaconn.Config{Brokers: c.Kafka.Brokers, Security: security(c)}}
	if v.Against != "" {
		return run.topics(ctx)
	}
	return run.table(ctx)
}

// idOf says where outboxd puts an event's id.
func idOf(e config.Event) (string, error) {
	for _, h := range e.Headers {
		if h.Name == "id" {
			return "header:" + h.Alias, nil
		}
	}
	switch {
	case len(e.Headers) == 0:
		return "header:id", nil
	case e.PayloadFormat == "cloudevents":
		return "header:ce_id", nil
	case e.PayloadFormat == "envelope" || e.PayloadFormat == "cloudevents-json":
		return "json:$.id", nil
	}
	return "", fault.Config(fault.CodeConfig, "Say where records have it: --id header:NAME or --id json:$.path.", nil, "OUTBOXD_HEADERS has no id, by which rows and records are told apart")
}

// strips names the member that holds the time of commit, which a table does not tell.
func strips(e config.Event) string {
	if e.Columns.Timestamp != "" {
		return ""
	}
	return map[string]string{"envelope": "occurredAt", "cloudevents-json": "time"}[e.PayloadFormat]
}

// verifying is one run of Verify.
type verifying struct {
	Verification
	cfg   *config.Config
	log   *zap.Logger
	idOf  verify.ID
	strip string // member of the value that is left out of the comparison
	conn  kafkaconn.Config
	done  int64
}

func (v *verifying) progress(what string, of int64) {
	v.done++
	if v.Progress != nil && (v.done%1000 == 0 || v.done == of) {
		v.Progress(what, v.done, of)
	}
}

// table compares the outbox tables with the topics their rows go to.
func (v *verifying) table(ctx context.Context) (report verify.Report, err error) {
	cmp, err := verify.New(verify.Options{Dir: v.Dir, Example: v.Example, Whole: v.whole()})
	if err != nil {
		return report, err
	}
	defer cmp.Close()
	db, err := newSource(v.cfg, v.cfg.Source.Login, nil, v.log)
	if err != nil {
		return report, err
	}
	lister, ok := db.(source.Lister)
	if !ok {
		return report, fmt.Errorf("verify: the source %s can't list rows", v.cfg.Source.Scheme)
	}
	topics, err := v.rows(ctx, lister, cmp)
	if err != nil {
		return report, err
	}
	cmp.CaughtUp(v.caughtUp(ctx, lister)) // before the topics' ends are asked for
	since := v.Since
	if !since.IsZero() {
		since = since.Add(-time.Hour) // a clock may be behind another
	}
	if err := v.records(ctx, topics, since, cmp); err != nil {
		return report, err
	}
	if v.DeadLetter != "" {
		if err := v.parked(ctx, cmp); err != nil {
			return report, err
		}
	}
	return cmp.Judge()
}

func (v *verifying) whole() bool {
	return v.Since.IsZero() && v.Until.IsZero() && v.FromID == "" && v.ToID == ""
}

// rows adds what the tables ask for, and gives the topics.
func (v *verifying) rows(ctx context.Context, lister source.Lister, cmp *verify.Comparison) ([]string, error) {
	router, err := newRouter(v.cfg)
	if err != nil {
		return nil, err
	}
	topics := map[string]bool{}
	what := source.Listing{Since: v.Since, Until: v.Until, FromID: v.FromID, ToID: v.ToID,
		Columns: func(t *source.Table) (id, made string, err error) {
			m, err := router.Describe(t)
			return m.ID, m.Timestamp, err
		}}
	err = lister.List(ctx, what, func(listed []source.Listed) error {
		for i := range listed {
			if err := v.row(router, &listed[i], cmp, topics); err != nil {
				return err
			}
			v.progress("rows", 0)
		}
		return nil
	})
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	slices.Sort(names)
	return names, err
}

func (v *verifying) row(router *transform.Router, listed *source.Listed, cmp *verify.Comparison, topics map[string]bool) error {
	made, err := router.Route([]source.Row{listed.Row}, nil)
	var refused *sink.Refusal
	if errors.As(err, &refused) {
		var id []byte
		if refused.Message != nil {
			id = refused.Message.ID
		}
		return cmp.Refused(listed.Table.String(), id, refused.Reason)
	}
	if err != nil {
		return err
	}
	m := &made[0]
	topics[m.Topic] = true
	e := verify.Event{Topic: m.Topic, ID: m.ID, Key: m.Key, Value: verify.Without(m.Value, v.strip), Spread: spread(m),
		At: listed.Tx.CommitAt, Exact: listed.Exact, Tx: listed.Tx.ID}
	return cmp.Expect(&e)
}

// spread is the number that decides about a message's partition.
func spread(m *sink.Message) int64 {
	switch {
	case m.Pinned:
		return int64(m.Partition)
	case m.Key == nil:
		return -1
	}
	return int64(kafka.Murmur2(m.Key) & 0x7fffffff)
}

// caughtUp tells whether all rows that were listed are delivered by what the checkpoint says.
// Another relay has none, and then it isn't known.
func (v *verifying) caughtUp(ctx context.Context, lister source.Lister) bool {
	mark, err := lister.Mark(ctx)
	if err != nil {
		v.log.Debug("the end of the log is not known", zap.Error(err))
		return false
	}
	s := newStore(v.cfg, v.log)
	defer func() { _ = s.Close() }()
	for began := time.Now(); ; {
		place, err := s.Load(ctx)
		if err != nil || place.Position == "" {
			return false
		}
		if passed, err := lister.Passed(place.Position, mark); err != nil || passed {
			return passed
		}
		if time.Since(began) > settle || ctx.Err() != nil {
			return false
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// settle is how long verify waits for a running instance to deliver what it has read in the table.
const settle = 3 * time.Second

// records adds what the topics hold.
func (v *verifying) records(ctx context.Context, topics []string, since time.Time, cmp *verify.Comparison) error {
	extents, missing, err := v.conn.Extents(ctx, topics, since)
	if err != nil {
		return err
	}
	cmp.Extents(extentsOf(extents), missing)
	var of int64
	for _, e := range extents {
		of += e.Records()
	}
	v.done = 0
	return v.conn.Read(ctx, extents, func(r *kafkaconn.Record) error {
		v.progress("records", of)
		return cmp.Find(v.record(r))
	})
}

func extentsOf(extents []kafkaconn.Extent) []verify.Extent {
	out := make([]verify.Extent, len(extents))
	for i, e := range extents {
		out[i] = verify.Extent{Topic: e.Topic, Partition: e.Partition, Start: e.Start, Open: e.End > e.Stable}
		if e.Later() {
			out[i].Start = 0 // what is older than what was read is there
		}
	}
	return out
}

func (v *verifying) record(r *kafkaconn.Record) *verify.Record {
	place, _ := r.Header("position")
	return &verify.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, At: r.Timestamp, Key: r.Key,
		Value: verify.Without(r.Value, v.strip), ID: v.idOf.Of(r.Header, r.Value), Place: string(place)}
}

// parked adds what is in the dead-letter topic. Its absence says that nothing is parked.
func (v *verifying) parked(ctx context.Context, cmp *verify.Comparison) error {
	extents, missing, err := v.conn.Extents(ctx, []string{v.DeadLetter}, time.Time{})
	if err != nil || len(missing) > 0 {
		return err
	}
	return v.conn.Read(ctx, extents, func(r *kafkaconn.Record) error {
		id, _ := r.Header("outboxd-dl-id")
		topic, _ := r.Header("outboxd-dl-topic")
		if id == nil || r.Value == nil {
			return nil
		}
		return cmp.Parked(string(topic), id)
	})
}

// topics compares each topic that another relay publishes under a prefix with the one without it.
func (v *verifying) topics(ctx context.Context) (report verify.Report, err error) {
	if !v.whole() {
		return report, fault.Config(fault.CodeConfig, "Leave them out with --against.", nil, "--since, --until, --from-id and --to-id bound rows, and --against compares topics")
	}
	cmp, err := verify.New(verify.Options{Dir: v.Dir, Example: v.Example, Whole: true, Against: true})
	if err != nil {
		return report, err
	}
	defer cmp.Close()
	all, err := v.conn.Topics(ctx)
	if err != nil {
		return report, err
	}
	var ours, theirs []string
	for _, t := range all {
		if own, ok := strings.CutPrefix(t, v.Against); ok && own != "" && slices.Contains(all, own) {
			ours, theirs = append(ours, own), append(theirs, t)
		}
	}
	if len(ours) == 0 {
		return report, fault.Config(fault.CodeConfig, "Give what the names of the other relay's topics begin with, as in --against shadow. and allow this login to describe both.", nil,
			"no topic begins with %q and exists without it too", v.Against)
	}
	first, _, err := v.conn.Extents(ctx, ours, time.Time{})
	if err != nil {
		return report, err
	}
	v.done = 0
	err = v.conn.Read(ctx, first, func(r *kafkaconn.Record) error {
		v.progress("records of the one", 0)
		x := v.record(r)
		return cmp.Published(x)
	})
	if err != nil {
		return report, err
	}
	extents, missing, err := v.conn.Extents(ctx, theirs, time.Time{})
	if err != nil {
		return report, err
	}
	for i := range extents {
		extents[i].Topic = strings.TrimPrefix(extents[i].Topic, v.Against)
	}
	cmp.Extents(extentsOf(extents), missing)
	for i := range extents {
		extents[i].Topic = v.Against + extents[i].Topic
	}
	v.done = 0
	err = v.conn.Read(ctx, extents, func(r *kafkaconn.Record) error {
		v.progress("records of the other", 0)
		x := v.record(r)
		x.Topic = strings.TrimPrefix(x.Topic, v.Against)
		return cmp.Find(x)
	})
	if err != nil {
		return report, err
	}
	return cmp.Judge()
}
