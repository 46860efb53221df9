package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// readVersion takes what the linker was told, else what Go knows of the build.
func readVersion() versionInfo {
	v := versionInfo{version, commit, runtime.Version()}
	if v.Version == "" {
		v.Version = "dev"
	}
	if info, ok := debug.ReadBuildInfo(); ok && v.Commit == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	if v.Commit == "" {
		v.Commit = "unknown"
	}
	return v
}

func versionCommand(_ context.Context, p *process, args []string) error {
	f, _ := flags("version")
	asJSON := f.Bool("json", false, "as JSON")
	if err := p.parse(f, args); err != nil {
		return err
	}
	v := readVersion()
	if *asJSON {
		return p.printJSON(v)
	}
	return p.print(fmt.Sprintf("outboxd %s (commit %s, %s)\n", v.Version, v.Commit, v.Go))
}
