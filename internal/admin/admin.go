// Package admin is the HTTP server an operator, an orchestrator and Prometheus
// ask: /livez, /readyz, /metrics, /status, and the page at /. It only reads, is fed by functions,
// and knows neither the engine nor the metrics library.
//
// It is open to whoever reaches its address unless a view token guards page and
// status, so it shows no secret, and a payload only when told to; it takes GET and HEAD alone, bounds every request, and refuses Host
// names it does not know: a web page in somebody's browser that points its own
// name at this address (DNS rebinding) gets nothing.
package admin

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
)

// answerLimit is how long the engine may take to tell its state. Its status is
// a copy under a lock, so beyond this it is stuck and the process can't help itself.
const answerLimit = 5 * time.Second

// Config is what a Server is made of.
type Config struct {
	// Report tells the connector's state. It is called from any goroutine.
	Report func() Report
	// Activity tells what the page shows beside the report; nil: nothing.
	Activity func() Activity
	// Source and Sink tell what is connected; without secrets.
	Source, Sink string
	// ViewToken guards /, /events and /status; nil: they are open. It is asked at each request.
	ViewToken func() (string, error)
	// Metrics serves /metrics; nil: not found.
	Metrics http.Handler
	Limits  Limits
	// Hosts are names, beside IP literals and localhost, that the Host header may
	// hold; without port, in any case.
	Hosts []string
	Now   func() time.Time // nil: time.Now
	Log   *zap.Logger
}

// Server serves HTTP between Start and Shutdown, which are called by one goroutine.
type Server struct {
	cfg     Config
	http    http.Server
	page    page
	samples samples
	viewers atomic.Int32
	quit    chan struct{} // closed when the server stops: feeds never end by themselves
	done    chan struct{} // closed when the serving goroutine ended; nil before Start
}

// New makes a Server. Nothing listens before Start.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Limits = cfg.Limits.orDefault()
	s := &Server{cfg: cfg, page: newPage(), quit: make(chan struct{})}
	s.http = http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	s.http.RegisterOnShutdown(sync.OnceFunc(func() { close(s.quit) }))
	return s
}

// Start listens on addr (host:port; port 0 takes a free one) and returns the
// address it got. A *fault.Error says that it can't be had.
func (s *Server) Start(addr string) (net.Addr, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fault.Config(fault.CodeConfig, "Set OUTBOXD_HTTP_ADDR to an address of this machine that is free, or to off.", err,
			"the HTTP server can't listen on %q", addr)
	}
	if l, err := zap.NewStdLogAt(s.cfg.Log, zap.WarnLevel); err == nil {
		s.http.ErrorLog = l
	}
	s.done = make(chan struct{})
	watching, end := context.WithCancel(context.Background())
	go s.watch(watching)
	go func() {
		defer close(s.done)
		defer end()
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Log.Error("HTTP server ended", zap.Error(err))
		}
	}()
	return ln.Addr(), nil
}

// Shutdown stops listening and waits for requests under way until ctx ends;
// then it cuts them and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
		err = fmt.Errorf("shut down HTTP server: %w", err)
	}
	if s.done != nil {
		<-s.done
	}
	return err
}

// Handler serves what the Server does, without a listener.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/livez", timely(s.livez))
	mux.Handle("/readyz", timely(s.readyz))
	mux.Handle("/status", s.guarded(timely(s.status)))
	mux.Handle("/", s.guarded(timely(s.root)))
	mux.Handle("/events", s.guarded(http.HandlerFunc(s.feed)))
	if s.cfg.Metrics != nil {
		mux.Handle("/metrics", s.cfg.Metrics)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case !s.knows(r.Host):
			answer(w, http.StatusForbidden, problem{"this Host name is not allowed: ask by IP address or as localhost"})
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			answer(w, http.StatusMethodNotAllowed, problem{"only GET and HEAD"})
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// timely bounds a handler that asks the engine.
func timely(h http.HandlerFunc) http.Handler {
	return http.TimeoutHandler(h, answerLimit, `{"error":"the engine does not answer"}`)
}

// livez is 200 as long as the process can help itself: while it waits, while
// it is held after a fault, but not when the engine does not even tell its state.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, struct {
		Live  bool   `json:"live"`
		State string `json:"state"`
	}{true, s.cfg.Report().State})
}

// readyz is 200 for an active instance that moves and for a healthy standby;
// with ?role=active only for the former.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	role := r.URL.Query().Get("role")
	if role != "" && role != active {
		answer(w, http.StatusBadRequest, problem{"role can only be active"})
		return
	}
	a := s.cfg.Limits.Ready(s.cfg.Report(), s.cfg.Now())
	if a.Ready && role != "" && a.Role != role {
		a.Ready, a.Reason = false, "standby, and an active instance was asked for"
	}
	code := http.StatusOK
	if !a.Ready {
		code = http.StatusServiceUnavailable
	}
	answer(w, code, a)
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	r, now := s.cfg.Report(), s.cfg.Now()
	answer(w, http.StatusOK, newStatus(r, s.cfg.Limits.Ready(r, now), now))
}

// guarded asks for the view token: as a bearer token, or as the password of
// basic authentication, which a browser asks its user for.
func (s *Server) guarded(h http.Handler) http.Handler {
	if s.cfg.ViewToken == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want, err := s.cfg.ViewToken()
		got, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer {
			_, got, _ = r.BasicAuth()
		}
		if err != nil || want == "" || subtle.ConstantTimeCompare([]byte(got), []byte(want)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="outboxd", charset="UTF-8"`)
			answer(w, http.StatusUnauthorized, problem{"the view token is needed: as a bearer token, or as the password to any user name"})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// knows reports whether a Host header may be answered. Browsers always send
// one, so a request without is no rebinding.
func (s *Server) knows(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return true
	}
	return strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(s.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

type problem struct {
	Error string `json:"error"`
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(body) // the client is gone, or its write timed out
}
