package fault

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Each code has a section of its name in docs/operations.md, and each section of
// that chapter is of a code. What a code is good for is shown by a test that names it.
func TestEachCodeHasARunbook(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, found := strings.Cut(string(text), "\n## Codes\n")
	if !found {
		t.Fatal("docs/operations.md has no chapter Codes")
	}
	sections := map[string]bool{}
	for line := range strings.Lines(chapter) {
		if name, ok := strings.CutPrefix(line, "### "); ok {
			sections[strings.TrimSpace(name)] = true
		}
	}
	tests := testTexts(t, root)
	for name, code := range codes(t) {
		if !sections[code] {
			t.Errorf("docs/operations.md has no section %s", code)
		}
		delete(sections, code)
		if !strings.Contains(tests, "fault."+name) && !strings.Contains(tests, `"`+code+`"`) {
			t.Errorf("no test names %s", code)
		}
	}
	for s := range sections {
		t.Errorf("docs/operations.md tells of %s, which is no code", s)
	}
}

// codes reads the constants Code… of this package.
func codes(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Code") && len(v.Values) == 1 {
			if code, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value); err == nil {
				all[v.Names[0].Name] = code
			}
		}
		return true
	})
	if len(all) < 10 {
		t.Fatalf("%d codes found", len(all))
	}
	return all
}

// testTexts is what all other tests of both modules say.
func testTexts(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") && d.Name() != "docs_test.go" {
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
