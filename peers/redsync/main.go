// redsync, on one server or several that vote.
package main

import (
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
)

func connect(servers []string) Library {
	var pools []redis.Pool
	for _, server := range servers {
		pools = append(pools, pool.NewPool(goredis.NewClient(&goredis.Options{Addr: server})))
	}
	sync := redsync.New(pools...)
	expiry := redsync.WithExpiry(lease())
	return Library{
		Lock: func(name string) Lock {
			// As often as it takes: others give up after 32 tries.
			mutex := sync.NewMutex(name, expiry, redsync.WithTries(1_000_000))
			return Lock{mutex.Lock, func() error { _, err := mutex.Unlock(); return err }}
		},
		Try: func(name string) (bool, error) {
			err := sync.NewMutex(name, expiry).TryLock()
			var taken *redsync.ErrTaken
			if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
				return false, nil
			}
			return err == nil, err
		},
	}
}

func main() { Drive(connect) }
