package main

import "testing"

func TestCentralMirror(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, mirrorOf, rest, want string
	}{
		{"all", "*", "", "https://mirror.example/maven"},
		{"central", "other, central", "", "https://mirror.example/maven"},
		{"external", "external:*", "", "https://mirror.example/maven"},
		{"all but central", "*,!central", "", ""},
		{"another repository", "other", "", ""},
		{"blocked", "*", "<blocked>true</blocked>", ""},
		{"plain http only", "external:http:*", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			settings := `<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors><mirror><mirrorOf>` + tt.mirrorOf +
				`</mirrorOf><url> https://mirror.example/maven/ </url>` + tt.rest + `</mirror></mirrors></settings>`
			if got := centralMirror([]byte(settings)); got != tt.want {
				t.Errorf("centralMirror = %q, want %q", got, tt.want)
			}
		})
	}
	if got := centralMirror([]byte("<settings")); got != "" {
		t.Errorf("centralMirror of a torn file = %q", got)
	}
}
