#!/bin/sh
# A pool of workers from the shell: start it four times, and every job is done once.
#
#     worker_pool.sh redis://localhost results.log
#
# Fencing: the result of a job is its line with the largest token (sort -k1,1n -k2,2n results.log).
# A smaller one is of a holder that had lost its lock.
export TIDELOCK_URL="${1:-file:}" LOG="${2:-results.log}"

# One job, run while the lock is held. If the lock is lost, tidelock stops it.
job='grep -qs "^$JOB " "$LOG" && exit 0
     sleep 0.1 # the job itself
     echo "$JOB $TIDELOCK_TOKEN $WORKER" >> "$LOG"'

export WORKER=$$
trap 'echo "stopped by Ctrl-C" >&2; exit 130' INT
touch "$LOG"
while [ "$(cut -d " " -f 1 "$LOG" | sort -u | wc -l)" -lt 20 ]; do
    for JOB in $(seq 0 19); do
        export JOB
        grep -q "^$JOB " "$LOG" ||
            tidelock run --quiet --wait 0 --ttl 10s "job/$JOB" -- sh -c "$job" ||
            [ $? -eq 124 ] || # another worker is at it
            echo "job $JOB: not done" >&2
    done
    sleep 0.1 # others are at the rest, and may die
done
