package admin

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
)

var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/page.css
	pageStyle string
	//go:embed page/page.js
	pageScript string
)

// page is the status page: one document that asks for nothing but its feed. The
// browser is told to run and to style by exactly what is in it.
type page struct {
	document *template.Template
	policy   string
}

func newPage() page {
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return page{
		document: template.Must(template.New("page").Parse(pageHTML)),
		policy: fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
			hash(pageStyle), hash(pageScript)),
	}
}

func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		http.NotFound(w, r)
		return
	}
	report, now := s.cfg.Report(), s.cfg.Now()
	status := newStatus(report, s.cfg.Limits.Ready(report, now), now)
	var b bytes.Buffer
	err := s.page.document.Execute(&b, struct {
		Name, Version, State, Sentence string
		Style                          template.CSS
		Script                         template.JS
	}{status.Name, status.Version, status.State, status.Sentence, template.CSS(pageStyle), template.JS(pageScript)})
	if err != nil {
		answer(w, http.StatusInternalServerError, problem{"the page can't be made"})
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", s.page.policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	_, _ = w.Write(b.Bytes()) // the client is gone, or its write timed out
}
