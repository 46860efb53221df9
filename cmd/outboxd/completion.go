package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// completionCommand prints a script for a shell. Commands, verbs and flags come
// from the table of commands, so that it never falls behind.
func completionCommand(_ context.Context, p *process, args []string) error {
	f, _ := flags("completion")
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		if err := p.parse(f, args); err != nil {
			return err
		}
		return misuse("completion: name the shell: bash, zsh or fish")
	}
	if err := p.parse(f, args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "bash":
		return p.print(bashCompletion())
	case "zsh":
		return p.print("#compdef outboxd\nautoload -U +X bashcompinit && bashcompinit\n" + bashCompletion())
	case "fish":
		return p.print(fishCompletion())
	}
	return misuse("completion: %q is none of bash, zsh, fish", args[0])
}

var (
	flagWord = regexp.MustCompile(`--[a-z-]+`)
	verbWord = regexp.MustCompile(`(?:^|\| )([a-z]+)`)
)

// words are what may stand behind a command.
func (c command) words() []string {
	words := []string{"--env-file", "--help"}
	for _, m := range verbWord.FindAllStringSubmatch(c.args, -1) {
		words = append(words, m[1])
	}
	words = append(words, flagWord.FindAllString(c.args, -1)...)
	slices.Sort(words)
	return slices.Compact(words)
}

func bashCompletion() string {
	var b, names strings.Builder
	for _, c := range commands() {
		fmt.Fprintf(&names, "%s ", c.name)
		fmt.Fprintf(&b, "    %s) words='%s' ;;\n", c.name, strings.Join(c.words(), " "))
	}
	return `_outboxd() {
  local word=${COMP_WORDS[COMP_CWORD]} words
  if [ "${COMP_WORDS[COMP_CWORD-1]}" = --env-file ]; then
    COMPREPLY=($(compgen -f -- "$word"))
    return
  fi
  case ${COMP_WORDS[1]} in
` + b.String() + `    *) words='` + names.String() + `help --env-file --help' ;;
  esac
  [ "$COMP_CWORD" -gt 1 ] || words='` + names.String() + `help --env-file --help'
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _outboxd outboxd
`
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString("complete -c outboxd -f\ncomplete -c outboxd -l env-file -r -F\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "complete -c outboxd -n __fish_use_subcommand -a %s -d %q\n", c.name, c.short)
		for _, w := range c.words() {
			if name, flag := strings.CutPrefix(w, "--"); !flag {
				fmt.Fprintf(&b, "complete -c outboxd -n '__fish_seen_subcommand_from %s' -a %s\n", c.name, w)
			} else if name != "env-file" {
				fmt.Fprintf(&b, "complete -c outboxd -n '__fish_seen_subcommand_from %s' -l %s\n", c.name, name)
			}
		}
	}
	return b.String()
}
