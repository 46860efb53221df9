package main

import (
	"fmt"
	"slices"
)

// sabotage spoils what was consumed, to show that the demo can fail.
func sabotage(kind string, records []record, t truth) ([]record, error) {
	records = slices.Clone(records)
	if kind == "" || len(records) == 0 {
		return records, nil
	}
	first := &records[0]
	switch kind {
	case "drop": // all copies, or a repeat would stand in for it
		return slices.DeleteFunc(records, func(r record) bool { return r.ID == records[len(records)-1].ID }), nil
	case "swap":
		for i := range records {
			if i > 0 && records[i].Key == first.Key {
				records[0], records[i] = records[i], records[0]
				return records, nil
			}
		}
	case "alter":
		first.Value += " "
	case "repeat":
		records = append(records, *first)
	case "invent":
		ghost := *first
		ghost.ID = t.rolledBack[0]
		records = append(records, ghost)
	default:
		return nil, fmt.Errorf("unknown -sabotage %q", kind)
	}
	return records, nil
}
