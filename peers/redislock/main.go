// bsm/redislock.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"
)

func connect(servers []string) Library {
	client := redislock.New(goredis.NewClient(&goredis.Options{Addr: servers[0]}))
	ctx, ttl := context.Background(), lease()
	return Library{
		Lock: func(name string) Lock {
			var held *redislock.Lock
			// The retry its own documentation shows.
			waiting := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
			return Lock{
				func() (err error) {
					for {
						held, err = client.Obtain(ctx, name, ttl, waiting)
						// It gives up after the lease.
						if !errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, context.DeadlineExceeded) {
							return
						}
					}
				},
				func() error { return held.Release(ctx) },
			}
		},
		Try: func(name string) (bool, error) {
			_, err := client.Obtain(ctx, name, ttl, nil)
			if errors.Is(err, redislock.ErrNotObtained) {
				return false, nil
			}
			return err == nil, err
		},
	}
}

func main() { Drive(connect) }
