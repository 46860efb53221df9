package transform

// arena is where a batch's derived bytes are kept: values in another form than
// the row's, places, names. What was taken stays where it is, for messages outlive the batch.
type arena struct {
	b []byte
}

// maxChunk bounds what is asked for at once on behalf of rows still to come.
const maxChunk = 64 << 10

// room makes sure of n bytes for a row; rows is how many are still to come, with this one.
func (a *arena) room(n, rows int) {
	if cap(a.b)-len(a.b) < n {
		a.b = make([]byte, 0, max(n, min(n*rows, maxChunk)))
	}
}

// since gives what was appended behind from, safe from what is appended next.
// Nothing is an empty value, not a missing one.
func (a *arena) since(from int) []byte {
	if from == len(a.b) {
		return []byte{}
	}
	return a.b[from:len(a.b):len(a.b)]
}
