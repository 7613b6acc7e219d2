package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// cpuTime is the processor time, user and system, that a process has used, those
// of its threads that have ended included. It reads the kernel's clock of the
// process in nanoseconds; the ticks in /proc are 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	const schedClock = 2
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(^pid<<3|schedClock), uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, errno)
	}
	return time.Duration(ts.Nano()), nil
}

// residentKiB is the resident set of a process.
func residentKiB(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := bytes.Cut(b, []byte("\nVmRSS:"))
	if !ok {
		return 0, fmt.Errorf("process %d has no resident set: it has ended", pid)
	}
	rest, _, _ = bytes.Cut(rest, []byte("kB"))
	return strconv.ParseFloat(string(bytes.TrimSpace(rest)), 64)
}

// busyTime is the time all processors of the machine were not idle, in steps of 10 ms.
func busyTime() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	var ticks int64
	for i, f := range strings.Fields(line) {
		switch i {
		case 1, 2, 3, 6, 7, 8: // user, nice, system, irq, softirq, steal
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/stat: %w", err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// cpuSet is a set of processors as the kernel takes it.
type cpuSet [16]uint64

// allowedCores lists the processors the calling thread may run on.
func allowedCores() ([]int, error) {
	var set cpuSet
	_, _, errno := syscall.Syscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(set), uintptr(unsafe.Pointer(&set)))
	if errno != 0 {
		return nil, fmt.Errorf("processors of this process: %w", errno)
	}
	var cores []int
	for i := range len(set) * 64 {
		if set[i/64]>>(i%64)&1 == 1 {
			cores = append(cores, i)
		}
	}
	return cores, nil
}

// pinThread binds the calling thread, and the processes it starts, to one core.
func pinThread(core int) error {
	var set cpuSet
	if core < 0 || core >= len(set)*64 {
		return fmt.Errorf("core %d is out of range", core)
	}
	set[core/64] = 1 << (core % 64)
	_, _, errno := syscall.Syscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(set), uintptr(unsafe.Pointer(&set)))
	if errno != 0 {
		return fmt.Errorf("bind to core %d: %w", core, errno)
	}
	return nil
}

// raiseFiles makes sure that this process and its children may open n files.
func raiseFiles(n uint64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	want := syscall.Rlimit{Cur: max(l.Max, n), Max: max(l.Max, n)} // above Max only root may go
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want); err != nil && l.Max < n {
		return fmt.Errorf("this run needs %d open files and the hard limit is %d: raise it (ulimit -Hn %d) or run fewer streams", n, l.Max, n)
	}
	return nil
}

// childAttr makes a child end when the thread that started it ends.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// machine describes what the figures were taken on.
func machine() string {
	model := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(b), "model name"); ok {
			rest, _, _ = strings.Cut(rest, "\n")
			model = strings.TrimSpace(strings.TrimLeft(rest, "\t :"))
		}
	}
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, Linux %s", model, bytes.TrimSpace(b))
}
