# Sourced by .ci/run and tools/test.sh: how long their parts take. A part is a line of the file $TIMES_FILE: wall seconds, processor seconds (user and
# system, of every process that the part waited for), name. What goes on beside the parts counts once more in the one during which it ends.

# look_at_processor: sets `processor` to the processor seconds of this shell and of what it waited for. Not to be called in a subshell, which has its own.
look_at_processor() {
    local all
    all=$(mktemp)
    times >"$all"
    processor=$(awk '{for (i = 1; i <= 2; i++) {split($i, t, /[ms]/); n += 60 * t[1] + t[2]}} END {printf "%.0f\n", n}' "$all")
    rm -f "$all"
}

# timed NAME COMMAND..: runs it, says what it took and notes it; its status.
timed() {
    local name=$1 started=$SECONDS before status=0 processor
    look_at_processor
    before=$processor
    shift
    "$@" || status=$?
    look_at_processor
    printf '%d %d %s\n' $((SECONDS - started)) $((processor - before)) "$name" >>"$TIMES_FILE"
    printf '== %s: %d s\n' "$name" $((SECONDS - started))
    return $status
}

# times_table: every part so far.
times_table() {
    printf '%8s %12s  %s\n' seconds 'processor s' part
    awk '{s = $1; c = $2; sub(/^[^ ]+ [^ ]+ /, ""); printf "%8d %12d  %s\n", s, c, $0}' "$TIMES_FILE"
}
