package kafkaconn

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
)

// TokenFile is Tokens in a file that somebody else keeps fresh. It is read at each login.
type TokenFile string

// Token implements Tokens.
func (f TokenFile) Token(context.Context) (string, error) {
	b, err := os.ReadFile(string(f))
	token := strings.TrimSpace(string(b))
	if err == nil && token == "" {
		err = fmt.Errorf("file %q is empty", string(f))
	}
	if err == nil && strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r > '~' }) {
		err = fmt.Errorf("file %q holds more than a token", string(f))
	}
	if err != nil {
		return "", fault.Config(fault.CodeConfig, "Put an access token into the file that OUTBOXD_KAFKA_SASL_OAUTH_TOKEN_FILE names.", err, "no access token for Kafka can be read")
	}
	return token, nil
}

// Refused implements Tokens.
func (TokenFile) Refused(string) {}

// ClientCredentials is Tokens from the token endpoint of an OAuth 2 server. One
// token serves all connections until it has little life left. Safe for concurrent use.
type ClientCredentials struct {
	URL    string // of the endpoint
	ID     string // of the client
	Secret func() (string, error)
	Scope  string // empty: none is asked for

	mu    sync.Mutex
	token string
	stale time.Time // when another one is asked for
}

// tokenTime is how long the endpoint may take.
const tokenTime = 8 * time.Second

// Token implements Tokens.
func (c *ClientCredentials) Token(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" && time.Now().Before(c.stale) {
		return c.token, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTime)
	defer cancel()
	token, life, err := c.ask(ctx)
	if err != nil {
		return "", err
	}
	c.token, c.stale = token, time.Now().Add(life/5*4)
	return token, nil
}

// Refused implements Tokens.
func (c *ClientCredentials) Refused(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == token {
		c.token = ""
	}
}

func (c *ClientCredentials) ask(ctx context.Context) (token string, life time.Duration, err error) {
	secret, err := c.Secret()
	if err != nil {
		return "", 0, fault.Config(fault.CodeConfig, "Correct OUTBOXD_KAFKA_SASL_OAUTH_CLIENT_SECRET_FILE or the file.", err, "the client secret can't be read")
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if c.Scope != "" {
		form.Set("scope", c.Scope)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, fmt.Errorf("ask for an access token: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	request.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(secret))
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // the secret is for this address
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return "", 0, fmt.Errorf("ask for an access token: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return "", 0, fmt.Errorf("ask for an access token: %w", err)
	}
	return c.read(response.StatusCode, body)
}

// read takes the answer of the endpoint apart.
func (c *ClientCredentials) read(status int, body []byte) (string, time.Duration, error) {
	var answer struct {
		Token       string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"` // seconds
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	err := json.Unmarshal(body, &answer)
	switch {
	case status >= 500 || status == http.StatusTooManyRequests:
		return "", 0, fmt.Errorf("ask for an access token: the endpoint answers with HTTP status %d", status)
	case status != http.StatusOK:
		return "", 0, fault.Config(fault.CodeAccessDenied, "Check OUTBOXD_KAFKA_SASL_OAUTH_TOKEN_URL, _CLIENT_ID, _CLIENT_SECRET and _SCOPE with what the OAuth server knows.", nil,
			"the token endpoint gives no access token: HTTP status %d %.100q %.300q", status, answer.Error, answer.Description)
	case err != nil || answer.Token == "":
		return "", 0, fault.Config(fault.CodeConfig, "Give OUTBOXD_KAFKA_SASL_OAUTH_TOKEN_URL the address of the token endpoint itself.", nil,
			"what answers at the token endpoint's address is no token endpoint: there is no access_token in its answer")
	case answer.ExpiresIn <= 0: // it may leave that out
		answer.ExpiresIn = 60
	}
	return answer.Token, time.Duration(min(answer.ExpiresIn, 1<<31)) * time.Second, nil
}
