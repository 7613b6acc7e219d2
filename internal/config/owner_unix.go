//go:build unix

package config

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// sameAccess gives a new file the owner and mode of the one that it will replace: Weir must still be able to read it.
func sameAccess(f *os.File, of fs.FileInfo) error {
	if stat, ok := of.Sys().(*syscall.Stat_t); ok {
		if err := f.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
			return fmt.Errorf("its owner could not be kept: run this as the owner of the file: %w", cause(err))
		}
	}
	return f.Chmod(of.Mode().Perm())
}
