setsid /bin/sh "$dir/supervise" </dev/null >/dev/null 2>&1 &
supervisor_pid=$!
tries=0
until [ -s session ] || [ $tries -ge 50 ]; do nap; tries=$((tries+1)); done
[ -s session ] || die $CANNOT_START "the supervisor did not start"
