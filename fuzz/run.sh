#!/bin/bash
# All targets at once, each a process of its own for so many seconds, and a line for each at the end.
#     run.sh SECONDS [targets]
# Beside it lie `all`, the targets in one program, and `seeds`, what fuzz/seeds.py has written to fuzz/corpus.
# What reaches new places is kept in `corpus`, and the next run begins with it.
cd "$(dirname "$0")" || exit 1
seconds=${1:-200}; shift
targets=${*:-$(ls seeds)}
work=$(mktemp -d)
one() {
    target=$1; begin=$SECONDS; runs=0; round=0
    mkdir -p "corpus/$target" "$work/$target/found"
    # A finding ends the process; what is left of the time is another's.
    while left=$((seconds - SECONDS + begin)); [ $left -gt 1 ]; do
        TRAINER_FUZZ=$target nice -n 19 ./all -max_total_time=$left -rss_limit_mb=2048 -malloc_limit_mb=1024 \
            -timeout=60 -artifact_prefix="$work/$target/found/" -print_final_stats=1 \
            "corpus/$target" "seeds/$target" > "$work/$target/log" 2>&1
        grep -aE "panicked at|^==.*ERROR|SUMMARY" -A1 "$work/$target/log" | cut -c1-300 >> "$work/$target/told"
        # The processor's time is the process's own: it is at the lowest priority.
        cover=$(grep -aoE "cov: [0-9]+" "$work/$target/log" | tail -1)
        more=$(grep -aoE "number_of_executed_units: [0-9]+" "$work/$target/log" | grep -oE "[0-9]+$")
        runs=$((runs + ${more:-0})); round=$((round + 1))
        [ $round -ge 50 ] && break
    done
    echo "| $target | $((SECONDS - begin)) | $runs | ${cover:-none} | $(ls "$work/$target/found" | wc -l) |"
}
echo "| target | seconds | executions | coverage | findings |"
for target in $targets; do one "$target" & done
wait
times > "$work/times"; echo "processor time, user and system: $(tail -1 "$work/times")"
for target in $targets; do
    [ -s "$work/$target/told" ] && { echo "== $target"; sort "$work/$target/told" | uniq -c | sort -rn | head -12; }
    for file in $(ls -Sr "$work/$target/found" | head -5); do
        [ "$(stat -c %s "$work/$target/found/$file")" -lt 8192 ] && echo "$target/$file $(base64 -w0 "$work/$target/found/$file")"
    done
done
rm -rf "$work"
