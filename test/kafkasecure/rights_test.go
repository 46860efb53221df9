package kafkasecure

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outboxd/outboxd/test/harness"
)

// allow gives a principal rights: "Read Write topic NAME", "Write transactional-id NAME";
// a name that ends in * is a prefix.
func allow(t testing.TB, principal string, rights ...string) {
	t.Helper()
	operations := map[string]kadm.ACLOperation{"Read": kadm.OpRead, "Write": kadm.OpWrite, "Create": kadm.OpCreate, "DescribeConfigs": kadm.OpDescribeConfigs}
	admin(t, func(ctx context.Context, a *kadm.Client) error {
		for _, r := range rights {
			words := strings.Fields(r)
			resource, name := words[len(words)-2], words[len(words)-1]
			pattern := kadm.ACLPatternLiteral
			if prefix, ok := strings.CutSuffix(name, "*"); ok {
				name, pattern = prefix, kadm.ACLPatternPrefixed
			}
			b := kadm.NewACLs().Allow("User:" + principal).AllowHosts("*").ResourcePatternType(pattern)
			if resource == "topic" {
				b.Topics(name)
			} else {
				b.TransactionalIDs(name)
			}
			var all []kadm.ACLOperation
			for _, w := range words[:len(words)-2] {
				all = append(all, operations[w])
			}
			answer, err := a.CreateACLs(ctx, b.Operations(all...))
			for _, one := range answer {
				if err == nil {
					err = one.Err
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// rightsScene is an outbox whose connector logs in as a user who may do nothing yet.
func rightsScene(t *testing.T, exactlyOnce bool) (o *harness.Outbox, name, checkpoints string) {
	t.Helper()
	name = user(t)
	o = scene(t, listener(t, "SASL_SSL"), exactlyOnce, "TLS=on", "TLS_CA_FILE="+authority(t).File,
		"SASL_MECHANISM=SCRAM-SHA-256", "SASL_USERNAME="+name, "SASL_PASSWORD="+name+"-pw")
	return o, name, strings.TrimPrefix(o.Env["OUTBOXD_CHECKPOINT"], "kafka:")
}

// command runs the binary to its end.
func command(t *testing.T, o *harness.Outbox, exit int, args ...string) string {
	t.Helper()
	p := harness.Start(t, harness.Command{Args: args, Env: o.Env})
	if code := p.Wait(t); code != exit {
		t.Errorf("outboxd %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, exit, p.Stdout(), p.Log())
	}
	return p.Stdout()
}

// These rights are enough, in each mode; docs/operations.md lists them.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		exactlyOnce bool
		file, made  bool // the checkpoint is in a file; its topic was made by somebody else
		rights      func(topics, checkpoints, id string) []string
	}{
		{"at least once, checkpoint in a file", false, true, false, func(topics, _, _ string) []string {
			return []string{"Write topic " + topics}
		}},
		{"at least once, all topics made by others", false, false, true, func(topics, checkpoints, _ string) []string {
			return []string{"Write topic " + topics, "Read Write topic " + checkpoints}
		}},
		{"at least once, checkpoint topic made by outboxd", false, false, false, func(topics, checkpoints, _ string) []string {
			return []string{"Write topic " + topics, "Read Write Create topic " + checkpoints}
		}},
		{"exactly once", true, false, true, func(topics, checkpoints, id string) []string {
			return []string{"Write topic " + topics, "Read Write topic " + checkpoints, "Write transactional-id " + id}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o, name, checkpoints := rightsScene(t, c.exactlyOnce)
			if c.file {
				o.Env["OUTBOXD_CHECKPOINT"] = "file:" + filepath.Join(t.TempDir(), "checkpoint")
			}
			if c.made {
				harness.CreateTopic(t, checkpoints, 1, map[string]string{"cleanup.policy": "compact"})
			}
			for _, topic := range o.Topics {
				allow(t, name, c.rights(topic, checkpoints, o.Env["OUTBOXD_NAME"])...)
			}
			command(t, o, 0, "setup", "--yes")
			command(t, o, 0, "check")
			p := harness.Start(t, harness.Command{Env: o.Env})
			p.WaitActive(t)
			o.Commit(t, 200)
			o.Tail.WaitEvents(t, 200)
			p.Stop(t)
			p = harness.Start(t, harness.Command{Env: o.Env})
			p.WaitActive(t)
			o.Commit(t, 100)
			o.Finish(t, p, "least rights: "+c.name, 0)
			command(t, o, 0, "check")
		})
	}
}

// Topics are made with the right to Create those that begin so.
func TestCreateTopicsTakesCreate(t *testing.T) {
	t.Parallel()
	o, name, checkpoints := rightsScene(t, false)
	prefix := harness.Unique("made-") + "."
	topics := []string{prefix + strings.TrimPrefix(o.Topics[0], "outbox.event."), prefix + strings.TrimPrefix(o.Topics[1], "outbox.event.")}
	harness.DeleteTopicsLater(t, topics...)
	o.Env["OUTBOXD_TOPIC"] = prefix + "{aggregate_type}"
	o.Env = with(o.Env, "CREATE_TOPICS=true", "TOPIC_PARTITIONS=2", "TOPIC_REPLICATION=1")
	allow(t, name, "Write topic "+prefix+"*", "Read Write Create topic "+checkpoints)
	p := harness.Start(t, harness.Command{Env: o.Env})
	p.WaitActive(t)
	o.Commit(t, 20)
	line, _ := p.WaitLog(t, "can't create topic", 0)
	if !strings.Contains(line.Text, "TOPIC_AUTHORIZATION_FAILED") && !strings.Contains(line.Text, "authorized") {
		t.Errorf("what is missing is not told: %s", line.Text)
	}
	harness.Eventually(t, "the status names the command", func() bool {
		_, body := p.Get("/status")
		return strings.Contains(body, "--operation Create --topic "+prefix)
	})
	allow(t, name, "Create topic "+prefix+"*")
	harness.Eventually(t, "topics and records are there", func() bool {
		return harness.TopicExists(t, topics[0]) && harness.TopicExists(t, topics[1]) && len(harness.Records(t, topics...)) == 20
	})
	p.Stop(t)
}

var fixLine = regexp.MustCompile(`(?m)^\s+fix: (kafka-acls\.sh .*)$`)

// What check and run print is run as it stands, until check has nothing left to say.
func TestPrintedCommandsGiveTheRights(t *testing.T) {
	t.Parallel()
	o, _, _ := rightsScene(t, true)
	dir := aclTool(t)
	o.Commit(t, 1) // check looks at the newest row's topic
	p := harness.Start(t, harness.Command{Env: o.Env})
	if code := p.Wait(t); code != 2 {
		t.Errorf("run without rights: exit code %d, want 2", code)
	}
	lines := p.Lines()
	last := lines[len(lines)-1]
	if fix, _ := last.Fields["fix"].(string); last.Fields["code"] != "grant_missing" || !strings.Contains(fix, "kafka-acls.sh --bootstrap-server "+listener(t, "SASL_SSL")) {
		t.Errorf("run without rights ends with %s", last.Text)
	}
	ran := map[string]bool{}
	for range 6 {
		check := harness.Start(t, harness.Command{Args: []string{"check"}, Env: o.Env})
		if check.Wait(t) == 0 {
			if len(ran) < 3 {
				t.Errorf("only %d commands were printed: %v", len(ran), ran)
			}
			return
		}
		commands := fixLine.FindAllStringSubmatch(check.Stdout(), -1)
		if len(commands) == 0 {
			t.Fatalf("check fails without a command:\n%s", check.Stdout())
		}
		for _, c := range commands {
			if ran[c[1]] {
				continue
			}
			ran[c[1]] = true
			cmd := exec.Command("sh", "-c", c[1])
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", c[1], err, out)
			}
		}
	}
	t.Errorf("check still fails after %v", ran)
}

// aclTool gives a folder with Kafka's own kafka-acls.sh, which works as the administrator.
func aclTool(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = --bootstrap-server ] || exit 9\nshift 2\n" +
		"exec java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp '" + harness.Need(t, "OUTBOXD_TEST_KAFKA_LIBS") +
		"/*' org.apache.kafka.tools.AclCommand --bootstrap-server " + plaintext(t) + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "kafka-acls.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// One of two topics is denied: events of the other flow until the first event
// of it is refused, and the last line has the command.
func TestDeniedTopicIsNamed(t *testing.T) {
	t.Parallel()
	o, name, checkpoints := rightsScene(t, false)
	o.Env["OUTBOXD_REJECT_AFTER"] = "2s"
	allow(t, name, "Write topic "+o.Topics[0], "Read Write Create topic "+checkpoints)
	p := harness.Start(t, harness.Command{Env: o.Env})
	p.WaitActive(t)
	o.Commit(t, 50)
	if code := p.Wait(t); code != 4 {
		t.Errorf("exit code %d, want 4", code)
	}
	lines := p.Lines()
	last := lines[len(lines)-1]
	for _, text := range []string{"event_refused", "--operation Write --topic " + o.Topics[1], "User:" + name} {
		if !strings.Contains(last.Text, text) {
			t.Errorf("the last line does not hold %q: %s", text, last.Text)
		}
	}
	allow(t, name, "Write topic "+o.Topics[1])
	p = harness.Start(t, harness.Command{Env: o.Env})
	o.Finish(t, p, "a topic that was denied", 50)
}

// A dry run prints what an administrator has to do, and asks nobody.
func TestDryRunPrintsRights(t *testing.T) {
	t.Parallel()
	o, name, checkpoints := rightsScene(t, true)
	o.Env = with(o.Env, "BROKERS=127.0.0.1:1")
	out := command(t, o, 0, "setup", "--dry-run", "--topics", "outbox.event.order")
	for _, text := range []string{
		"--allow-principal User:" + name + " --operation Write --topic outbox.event. --resource-pattern-type prefixed",
		"--operation Write --transactional-id " + o.Env["OUTBOXD_NAME"],
		"--operation Read --operation Write --operation Create --topic " + checkpoints,
		"--create --if-not-exists --topic outbox.event.order",
	} {
		if !strings.Contains(out, text) {
			t.Errorf("setup --dry-run does not print %q:\n%s", text, out)
		}
	}
}
