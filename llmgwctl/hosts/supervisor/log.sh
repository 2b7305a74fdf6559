cd /
log=$dir/log
[ -e "$log" ] || die 1 "there is no log in $dir"
# The end is bounded in bytes too: a line of an engine can be as long as it likes.
size=$(($(wc -c < "$log")))
from=0
[ "$size" -le "$most" ] || from=$((size-most))
tail -c "+$((from+1))" "$log" | head -c "$((size-from))" | tail -n "$lines"
[ -z "$follow" ] || exec tail -c "+$((size+1))" -F "$log" 2>/dev/null
