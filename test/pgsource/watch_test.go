package pgsource

import (
	"context"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
)

// A publication that stops to carry the table while it is read, for a moment
// too, is found out although the server says nothing of the rows it skips.
func TestPublicationAlteredWhileReading(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		for name, alter := range map[string][]string{
			"dropped":                     {`DROP PUBLICATION %`},
			"made anew":                   {`DROP PUBLICATION %`, ``, `CREATE PUBLICATION % FOR TABLE outbox WITH (publish = 'insert')`},
			"without the table":           {`ALTER PUBLICATION % DROP TABLE outbox`},
			"taken out and put back":      {`ALTER PUBLICATION % DROP TABLE outbox`, ``, `ALTER PUBLICATION % ADD TABLE outbox`},
			"without inserts for a while": {`ALTER PUBLICATION % SET (publish = 'delete')`, ``, `ALTER PUBLICATION % SET (publish = 'insert')`},
			"with a row filter":           {`ALTER PUBLICATION % SET TABLE outbox WHERE (id > 2)`},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, server)
				s := newSource(t, d.config())
				stream, err := s.Open(t.Context(), begin(t, s))
				if err != nil {
					t.Fatal(err)
				}
				d.write(t, true, "1")
				_, at := readUntil(t, stream, "1")
				for _, statement := range append(alter, ``) {
					if statement == "" { // a row that is skipped
						d.write(t, true, "2")
						continue
					}
					d.Exec(t, strings.ReplaceAll(statement, "%", d.slot))
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				for err == nil {
					_, err = stream.Next(ctx)
				}
				if !fault.Is(err, fault.CodePublicationLost) {
					t.Fatalf("next: %v", err)
				}
				if err := stream.Close(ctx); err != nil {
					t.Error(err)
				}
				if _, err := s.Open(ctx, at); !fault.Is(err, fault.CodePublicationLost) {
					t.Errorf("open: %v", err)
				}
				d.repair(t, s, fault.As(err))
			})
		}
	})
}
