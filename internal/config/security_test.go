package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kafkaAt is a faultless environment with a broker elsewhere, and settings on top.
func kafkaAt(host string, settings ...string) []string {
	env := []string{"OUTBOXD_SOURCE_URL=postgres://u@h/db", "OUTBOXD_KAFKA_BROKERS=127.0.0.1:9092," + host + ":9092"}
	for _, s := range settings {
		env = append(env, "OUTBOXD_KAFKA_"+s)
	}
	return env
}

func TestSecurity(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	scram := []string{"SASL_MECHANISM=SCRAM-SHA-512", "SASL_USERNAME=u", "SASL_PASSWORD_FILE=" + secret}
	plain := []string{"SASL_MECHANISM=PLAIN", "SASL_USERNAME=u", "SASL_PASSWORD=p"}
	endpoint := []string{"TLS=on", "SASL_MECHANISM=OAUTHBEARER", "SASL_OAUTH_TOKEN_URL=https://idp/token", "SASL_OAUTH_CLIENT_ID=c", "SASL_OAUTH_CLIENT_SECRET=s"}
	tests := map[string]struct {
		host     string
		settings []string
		problems []string // each "NAME: part of the reason"
	}{
		"TLS":                                 {"kafka", []string{"TLS=on", "TLS_CA_FILE=/ca", "TLS_SERVER_NAME=kafka.example"}, nil},
		"mutual TLS":                          {"kafka", []string{"TLS=true", "TLS_CERT_FILE=/crt", "TLS_KEY_FILE=/key"}, nil},
		"half a certificate":                  {"kafka", []string{"TLS=on", "TLS_CERT_FILE=/crt"}, []string{"TLS_KEY_FILE: is required by the other half"}},
		"TLS files with TLS off":              {"kafka", []string{"TLS_CA_FILE=/ca", "TLS_SERVER_NAME=x"}, []string{"TLS_CA_FILE: OUTBOXD_KAFKA_TLS is off", "TLS_SERVER_NAME: OUTBOXD_KAFKA_TLS is off"}},
		"SCRAM":                               {"kafka", scram, nil},
		"SCRAM without user and password":     {"kafka", scram[:1], []string{"SASL_USERNAME: is required", "SASL_PASSWORD: is required"}},
		"a login without a mechanism":         {"kafka", scram[1:], []string{"SASL_USERNAME: MECHANISM is not", "SASL_PASSWORD_FILE: MECHANISM is not"}},
		"PLAIN on this machine":               {"localhost", plain, nil},
		"PLAIN over the network":              {"kafka", plain, []string{"SASL_MECHANISM: PLAIN would send a secret unencrypted to kafka"}},
		"PLAIN over the network, as asked":    {"10.0.0.1", append(plain, "ALLOW_PLAINTEXT=true"), nil},
		"PLAIN with TLS":                      {"kafka", append(plain, "TLS=on"), nil},
		"OAUTHBEARER from a file":             {"kafka", []string{"TLS=on", "SASL_MECHANISM=OAUTHBEARER", "SASL_OAUTH_TOKEN_FILE=/token", "SASL_OAUTH_EXTENSIONS=logicalCluster=lkc-1, identityPoolId=p=1"}, nil},
		"OAUTHBEARER from an endpoint":        {"kafka", append(endpoint, "SASL_OAUTH_SCOPE=a b"), nil},
		"OAUTHBEARER over the network":        {"kafka", []string{"SASL_MECHANISM=OAUTHBEARER", "SASL_OAUTH_TOKEN_FILE=/token"}, []string{"SASL_MECHANISM: unencrypted"}},
		"OAUTHBEARER from nowhere":            {"kafka", endpoint[:2], []string{"SASL_OAUTH_TOKEN_URL: is required"}},
		"OAUTHBEARER from two places":         {"kafka", append(endpoint, "SASL_OAUTH_TOKEN_FILE=/token"), []string{"SASL_OAUTH_TOKEN_URL: are both set"}},
		"an endpoint without a client":        {"kafka", endpoint[:3], []string{"SASL_OAUTH_CLIENT_ID: is required", "SASL_OAUTH_CLIENT_SECRET: is required"}},
		"an endpoint without TLS":             {"kafka", append([]string{"SASL_OAUTH_TOKEN_URL=http://idp/token"}, append(endpoint[:2:2], endpoint[3:]...)...), []string{"SASL_OAUTH_TOKEN_URL: the client's secret unencrypted"}},
		"an endpoint on this machine":         {"kafka", append([]string{"SASL_OAUTH_TOKEN_URL=http://127.0.0.1:1/token"}, append(endpoint[:2:2], endpoint[3:]...)...), nil},
		"an endpoint that holds a password":   {"kafka", append([]string{"SASL_OAUTH_TOKEN_URL=https://u:p@idp/token"}, append(endpoint[:2:2], endpoint[3:]...)...), []string{"SASL_OAUTH_TOKEN_URL: holds a user"}},
		"a password with OAUTHBEARER":         {"kafka", append(endpoint, "SASL_PASSWORD=p"), []string{"SASL_PASSWORD: has no use with"}},
		"a token file with SCRAM":             {"kafka", append(scram, "SASL_OAUTH_TOKEN_FILE=/t"), []string{"SASL_OAUTH_TOKEN_FILE: has no use with"}},
		"an extension that is none":           {"kafka", append(endpoint, "SASL_OAUTH_EXTENSIONS=auth=x"), []string{"SASL_OAUTH_EXTENSIONS: form"}},
		"a mechanism that is none, and users": {"kafka", append([]string{"SASL_MECHANISM=scram"}, scram[1:]...), []string{"SASL_MECHANISM: none of the legal"}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loaded, _, err := Load(kafkaAt(c.host, c.settings...))
			if len(c.problems) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range loaded.Values() {
					if v.Value == "geheim" || (strings.HasSuffix(v.Name, "SECRET") && v.Value == "s") {
						t.Errorf("%s is shown", v.Name)
					}
				}
				return
			}
			ps := problems(t, err)
			if len(ps) != len(c.problems) {
				t.Fatalf("problems %v, want %q", ps, c.problems)
			}
			for i, want := range c.problems {
				name, reason, _ := strings.Cut(want, ": ")
				if ps[i].Name != "OUTBOXD_KAFKA_"+name || !strings.Contains(ps[i].Reason, reason) {
					t.Errorf("problem %v, want %q", ps[i], want)
				}
			}
		})
	}
}

// A secret from a file is read again each time.
func TestKafkaPasswordIsReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	c, _, err := Load(kafkaAt("kafka", "SASL_MECHANISM=SCRAM-SHA-256", "SASL_USERNAME=u", "SASL_PASSWORD_FILE="+file))
	if err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"one", "two"} {
		write(password)
		if got, err := c.Kafka.Security.Password(); err != nil || got != password {
			t.Errorf("got %q, %v, want %q", got, err, password)
		}
	}
}
