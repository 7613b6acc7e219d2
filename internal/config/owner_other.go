//go:build !unix

package config

import (
	"io/fs"
	"os"
)

// sameAccess gives a new file the mode of the one that it will replace.
func sameAccess(f *os.File, of fs.FileInfo) error { return f.Chmod(of.Mode().Perm()) }
