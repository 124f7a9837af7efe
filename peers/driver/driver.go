// What every peer in Go does: see ../README.md. A library gives its locks; this times them.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	warmUp = 50
	// How long a holder of many locks may take to give them back before it just ends.
	releaseLimit = 2 * time.Second
)

// Lock is taken and given back.
type Lock struct {
	Lock   func() error
	Unlock func() error
}

// Library is what is timed.
type Library struct {
	Lock func(name string) Lock
	// Kept gives a lock that is held beside many of other names; nil if that is any.
	Kept func(name string) Lock
	// Lead gives an election: its lock is a term; nil if the library has none.
	Lead func(name string) Lock
	// Try says whether a lock was taken; nil if the library has none.
	Try func(name string) (bool, error)
	// Close ends a session; nil if there is none.
	Close func() error
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(index int) int {
	number, err := strconv.Atoi(os.Args[index])
	check(err)
	return number
}

// hands is where the holder writes its number; handed is how often another one stood there in this turn.
var (
	hands  *os.File
	handed atomic.Int64
)

func note() {
	if hands == nil {
		return
	}
	var before, own [4]byte
	binary.LittleEndian.PutUint32(own[:], uint32(os.Getpid()))
	_, err := hands.ReadAt(before[:], 0)
	check(err)
	if before != own {
		handed.Add(1)
		_, err = hands.WriteAt(own[:], 0)
		check(err)
	}
}

// count is a number that nobody may change without the lock, from when the program is ready: see ../README.md.
var (
	count *os.File
	begun atomic.Bool
)

func add() {
	if count == nil || !begun.Load() {
		return
	}
	var number [12]byte
	_, err := count.ReadAt(number[:], 0)
	check(err)
	if other := binary.LittleEndian.Uint32(number[8:]); other != 0 {
		check(fmt.Errorf("the process %d holds the lock, too", other))
	}
	binary.LittleEndian.PutUint32(number[8:], uint32(os.Getpid()))
	_, err = count.WriteAt(number[8:], 8)
	check(err)
	_, err = count.ReadAt(number[:8], 0)
	check(err)
	binary.LittleEndian.PutUint64(number[:8], binary.LittleEndian.Uint64(number[:8])+1)
	_, err = count.WriteAt(number[:8], 0)
	check(err)
	_, err = count.WriteAt(make([]byte, 4), 8)
	check(err)
}

func (lock Lock) pair() time.Duration {
	asked := time.Now()
	check(lock.Lock())
	waited := time.Since(asked)
	note()
	add()
	check(lock.Unlock())
	return waited
}

// answers calls turn for each line that is read, and says what it answers.
func answers(turn func() any) {
	lines := ready()
	for lines.Scan() {
		answer(turn())
	}
}

func ready() *bufio.Scanner {
	begun.Store(true)
	fmt.Println("ready")
	return bufio.NewScanner(os.Stdin)
}

// timed calls each work again and again, in each turn. A work says how long it waited.
func timed(works []func() time.Duration, millis int) {
	limit := time.Duration(millis) * time.Millisecond
	answers(func() any {
		handed.Store(0)
		start := time.Now()
		waits := make([][]time.Duration, len(works))
		var all sync.WaitGroup
		for index, work := range works {
			all.Add(1)
			go func() {
				defer all.Done()
				for time.Since(start) < limit {
					waits[index] = append(waits[index], work())
				}
			}()
		}
		all.Wait()
		return summary(slices.Concat(waits...), time.Since(start))
	})
}

func summary(waits []time.Duration, took time.Duration) any {
	slices.Sort(waits)
	at := func(part float64) float64 {
		if len(waits) == 0 {
			return 0
		}
		return float64(waits[min(len(waits)-1, int(float64(len(waits))*part))].Nanoseconds()) / 1e3
	}
	said := map[string]any{
		"pairs": len(waits), "seconds": took.Seconds(),
		"waits_us": map[string]float64{"p50": at(0.5), "p99": at(0.99), "max": at(1)},
	}
	if hands != nil {
		said["handed"] = handed.Load()
	}
	return said
}

func answer(what any) {
	check(json.NewEncoder(os.Stdout).Encode(what))
}

// lease is for how long a client that dies still holds.
func lease() time.Duration {
	if millis, err := strconv.Atoi(os.Getenv("LEASE_MS")); err == nil {
		return time.Duration(millis) * time.Millisecond
	}
	return 30 * time.Second
}

// Drive does what the arguments say.
func Drive(connect func(servers []string) Library) {
	verb, name := os.Args[1], os.Args[3]
	if path := os.Getenv("HANDS"); path != "" {
		var err error
		hands, err = os.OpenFile(path, os.O_RDWR, 0)
		check(err)
	}
	if path := os.Getenv("COUNT"); path != "" {
		var err error
		count, err = os.OpenFile(path, os.O_RDWR, 0)
		check(err)
	}
	library := connect(strings.Split(os.Args[2], ","))
	if verb != "hold" {
		warm := library.Lock(name + "-warm")
		for i := 0; i < warmUp; i++ {
			warm.pair()
		}
	}
	switch {
	case verb == "pairs":
		distinct := len(os.Args) > 6 && os.Args[6] == "distinct"
		var works []func() time.Duration
		for task := 0; task < number(4); task++ {
			its := name
			if distinct {
				its = fmt.Sprintf("%s-%d", name, task)
			}
			works = append(works, library.Lock(its).pair)
		}
		timed(works, number(5))
	case verb == "lead" && library.Lead != nil:
		timed([]func() time.Duration{library.Lead(name).pair}, number(5))
	case verb == "try" && library.Try != nil:
		held := library.Lock(name)
		check(held.Lock())
		try := func() time.Duration {
			asked := time.Now()
			taken, err := library.Try(name)
			check(err)
			if taken {
				check(fmt.Errorf("a lock that is held was taken"))
			}
			return time.Since(asked)
		}
		timed([]func() time.Duration{try}, number(4))
		check(held.Unlock())
	case verb == "hold":
		kept := library.Kept
		if kept == nil {
			kept = library.Lock
		}
		var locks []Lock
		for i := 0; i < number(4); i++ {
			lock := kept(fmt.Sprintf("%s-%d", name, i))
			check(lock.Lock())
			locks = append(locks, lock)
		}
		answers(func() any { return summary(make([]time.Duration, len(locks)), 0) })
		start := time.Now()
		for _, lock := range locks {
			if time.Since(start) > releaseLimit {
				break
			}
			check(lock.Unlock())
		}
	case verb == "wait":
		lock := library.Lock(name)
		for lines := ready(); lines.Scan(); {
			asked := time.Now()
			check(lock.Lock())
			waited := time.Since(asked)
			answer(summary([]time.Duration{waited}, waited))
			check(lock.Unlock())
		}
	default:
		fmt.Fprintf(os.Stderr, "there is no %s of this library\n", verb)
		os.Exit(3)
	}
	if library.Close != nil {
		check(library.Close())
	}
}
