package checker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestReadTopics(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "full", "empty"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.TransactionalID("writer"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	write := func(kind string, end kgo.TransactionEndTry) {
		t.Helper()
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			r := &kgo.Record{Topic: "full", Key: fmt.Appendf(nil, "%s-%d", kind, i), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "id"}}}
			if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	write("committed", kgo.TryCommit)
	write("aborted", kgo.TryAbort)

	for level, want := range map[Isolation]int{Uncommitted: 200, Committed: 100} {
		records, err := ReadTopics(ctx, cluster.ListenAddrs(), level, "full", "empty")
		if err != nil {
			t.Fatal(err)
		}
		if len(records) != want {
			t.Errorf("isolation %v: %d records, want %d", level, len(records), want)
		}
		for _, r := range records {
			if r.Partitions != 4 || r.Partition != Partition(r.Key, 4) || len(r.Headers) != 1 || r.Headers[0].Value != nil {
				t.Fatalf("unexpected record %+v", r)
			}
		}
	}
	if _, err := ReadTopics(ctx, cluster.ListenAddrs(), Uncommitted, "absent"); err == nil {
		t.Error("a topic that does not exist reads as an empty one")
	}
}
