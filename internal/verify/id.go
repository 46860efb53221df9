package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// ID says where a record has its event's id.
type ID struct {
	header string
	path   []string // of members, in the value
}

// ParseID reads header:NAME or json:$.path.
func ParseID(text string) (ID, error) {
	if name, ok := strings.CutPrefix(text, "header:"); ok && name != "" {
		return ID{header: name}, nil
	}
	if path, ok := strings.CutPrefix(text, "json:$."); ok {
		parts := strings.Split(path, ".")
		for _, p := range parts {
			if p == "" || strings.ContainsAny(p, "[]*'\"") {
				return ID{}, errors.New("has a path that is not made of members")
			}
		}
		return ID{path: parts}, nil
	}
	return ID{}, errors.New("is neither header:NAME nor json:$.path")
}

// Of gives a record's id; nil when it has none. A header that JsonConverter wrote is read as what it stands for.
func (i ID) Of(header func(string) ([]byte, bool), value []byte) []byte {
	if i.header != "" {
		v, _ := header(i.header)
		return plain(v)
	}
	for _, p := range i.path {
		var members map[string]json.RawMessage
		if json.Unmarshal(value, &members) != nil {
			return nil
		}
		value = members[p]
	}
	return plain(value)
}

// plain takes JSON's quotes, and Connect's schema, from around an id.
func plain(v []byte) []byte {
	if len(v) < 2 {
		return v
	}
	switch v[0] {
	case '"':
		var s string
		if json.Unmarshal(v, &s) == nil {
			return []byte(s)
		}
	case '{':
		var whole struct{ Schema, Payload json.RawMessage }
		if json.Unmarshal(v, &whole) == nil && whole.Schema != nil && whole.Payload != nil {
			return plain(whole.Payload)
		}
	}
	return v
}

// Without leaves a text member of the outermost object out of a value that outboxd wrote.
func Without(value []byte, member string) []byte {
	if member == "" || value == nil {
		return value
	}
	head := []byte(`"` + member + `":"`)
	i := bytes.Index(value, head)
	if i < 0 {
		return value
	}
	end := bytes.IndexByte(value[i+len(head):], '"')
	if end < 0 {
		return value
	}
	return append(append(make([]byte, 0, len(value)), value[:i]...), value[i+len(head)+end+1:]...)
}
