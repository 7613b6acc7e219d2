//go:build !linux

package main

import (
	"errors"
	"runtime"
	"syscall"
	"time"
)

// errLinux is returned where the kernel's figures are not to be had.
var errLinux = errors.New("the benchmark reads Linux's process figures: run it on Linux")

func cpuTime(int) (time.Duration, error) { return 0, errLinux }
func residentKiB(int) (float64, error)   { return 0, errLinux }
func busyTime() (time.Duration, error)   { return 0, errLinux }
func allowedCores() ([]int, error)       { return nil, errLinux }
func pinThread(int) error                { return errLinux }
func raiseFiles(uint64) error            { return errLinux }
func childAttr() *syscall.SysProcAttr    { return nil }
func machine() string                    { return runtime.GOOS }
