package postgres

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
)

// pooler speaks as PgBouncer does, up to and with the first query.
func pooler(t *testing.T, refusal *pgproto3.ErrorResponse, row ...string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b := pgproto3.NewBackend(conn, conn)
				if _, err := b.ReceiveStartupMessage(); err != nil {
					return
				}
				if refusal != nil {
					b.Send(refusal)
					_ = b.Flush()
					return
				}
				b.Send(&pgproto3.AuthenticationOk{})
				b.Send(&pgproto3.BackendKeyData{ProcessID: 3234709627, SecretKey: []byte{1, 2, 3, 4}})
				b.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
				b.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
				b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
				_ = b.Flush()
				if _, err := b.Receive(); err != nil {
					return
				}
				b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{
					{Name: []byte("pg_backend_pid"), DataTypeOID: 23, DataTypeSize: 4}, {Name: []byte("current_setting"), DataTypeOID: 25, DataTypeSize: -1}}})
				b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(row[0]), []byte(row[1])}})
				b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
				b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
				_ = b.Flush()
				_, _ = b.Receive()
			}()
		}
	}()
	return l.Addr().String()
}

// C55: a pooler is named as the cause, whether it refuses us or lets us in. The
// words are PgBouncer 1.18's and RDS Proxy's.
func TestPoolerIsNamed(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{
		"a parameter it does not know": pooler(t, &pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: idle_session_timeout"}),
		"no replication":               pooler(t, &pgproto3.ErrorResponse{Severity: "FATAL", Code: "0A000", Message: "Feature not supported: RDS Proxy currently doesn't support streaming replication"}),
		"a session of its own":         pooler(t, nil, "30901", "15s"),
		"a parameter it left out":      pooler(t, nil, "3234709627", "0"),
	} {
		s, err := New(Config{URL: "postgres://cdc@" + addr + "/shop?sslmode=disable", Name: "shop", Tables: []TableName{{Name: "outbox"}}, Slot: "shop", Publication: "shop"}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err = s.Acquire(ctx, nil)
		cancel()
		f := fault.As(err)
		if f == nil || f.Exit != fault.ExitConfig || !strings.Contains(f.Found, "PgBouncer") || !strings.Contains(f.Fix, "the database server itself") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
