// What every peer in Go does: see ../README.md. A library gives its locks; this times them.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

const warmUp = 50

// Lock is taken and given back.
type Lock struct {
	Lock   func() error
	Unlock func() error
}

// Library is what is timed.
type Library struct {
	Lock func(name string) Lock
	// Try says whether a lock was taken; nil if the library has none.
	Try func(name string) (bool, error)
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

func (lock Lock) pair() time.Duration {
	asked := time.Now()
	check(lock.Lock())
	waited := time.Since(asked)
	check(lock.Unlock())
	return waited
}

func ready() {
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
}

// timed calls each work again and again. A work says how long it waited.
func timed(works []func() time.Duration, millis int) {
	ready()
	start, limit := time.Now(), time.Duration(millis)*time.Millisecond
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
	seconds := time.Since(start).Seconds()
	var each []time.Duration
	for _, some := range waits {
		each = append(each, some...)
	}
	sort.Slice(each, func(a, b int) bool { return each[a] < each[b] })
	at := func(part float64) float64 {
		if len(each) == 0 {
			return 0
		}
		return float64(each[min(len(each)-1, int(float64(len(each))*part))].Nanoseconds()) / 1e3
	}
	answer(map[string]any{
		"pairs": len(each), "seconds": seconds,
		"waits_us": map[string]float64{"p50": at(0.5), "p99": at(0.99), "max": at(1)},
	})
}

func answer(what map[string]any) {
	check(json.NewEncoder(os.Stdout).Encode(what))
}

// Drive does what the arguments say.
func Drive(connect func(servers []string) Library) {
	verb, name := os.Args[1], os.Args[3]
	library := connect(strings.Split(os.Args[2], ","))
	switch {
	case verb == "pairs":
		tasks, millis := number(4), number(5)
		distinct := len(os.Args) > 6 && os.Args[6] == "distinct"
		warm := library.Lock(name + "-warm")
		for i := 0; i < warmUp; i++ {
			warm.pair()
		}
		var works []func() time.Duration
		for task := 0; task < tasks; task++ {
			its := name
			if distinct {
				its = fmt.Sprintf("%s-%d", name, task)
			}
			works = append(works, library.Lock(its).pair)
		}
		timed(works, millis)
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
		var locks []Lock
		for i := 0; i < number(4); i++ {
			lock := library.Lock(fmt.Sprintf("%s-%d", name, i))
			check(lock.Lock())
			locks = append(locks, lock)
		}
		ready()
		for _, lock := range locks {
			check(lock.Unlock())
		}
		answer(map[string]any{"pairs": len(locks), "seconds": 0})
	default:
		fmt.Fprintf(os.Stderr, "there is no %s of this library\n", verb)
		os.Exit(3)
	}
}
