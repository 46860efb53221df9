package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
)

// mavenMirror returns the mirror of the central repository that this machine's
// Maven settings name, or "". The archive of Postgres is a Maven artifact.
func mavenMirror() string {
	files := []string{"/etc/maven/settings.xml"}
	if home := os.Getenv("MAVEN_HOME"); home != "" {
		files = append([]string{filepath.Join(home, "conf", "settings.xml")}, files...)
	}
	if home, err := os.UserHomeDir(); err == nil {
		files = append([]string{filepath.Join(home, ".m2", "settings.xml")}, files...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // most machines have none
		}
		if url := centralMirror(text); url != "" {
			return url
		}
	}
	return ""
}

// centralMirror reads a Maven settings file.
func centralMirror(settings []byte) string {
	var s struct {
		Mirrors []struct {
			MirrorOf string `xml:"mirrorOf"`
			URL      string `xml:"url"`
			Blocked  bool   `xml:"blocked"`
		} `xml:"mirrors>mirror"`
	}
	if xml.Unmarshal(settings, &s) != nil {
		return ""
	}
	for _, m := range s.Mirrors {
		if !m.Blocked && mirrorsCentral(m.MirrorOf) {
			return strings.TrimRight(strings.TrimSpace(m.URL), "/")
		}
	}
	return ""
}

func mirrorsCentral(mirrorOf string) bool {
	central := false
	for name := range strings.SplitSeq(mirrorOf, ",") {
		switch strings.TrimSpace(name) {
		case "!central":
			return false
		case "*", "central", "external:*":
			central = true
		}
	}
	return central
}
