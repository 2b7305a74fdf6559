#!/bin/sh
# Keeps one engine running where there is no systemd: restarts it at most %MAX_RESTARTS% times.
cd "$(dirname "$0")" || exit 1
read -r line < /proc/$$/stat
set -- ${line##*)}; shift 19
echo "$$ $1" > session
count=0
while :; do
  /bin/sh "$PWD/run" </dev/null >>log 2>&1 &
  child=$!
  echo "$child" > pid
  wait "$child"
  status=$?
  [ -e run ] || exit 0 # the folder was removed
  echo "$status" > exit
  [ -e stopping ] && exit 0
  count=$((count+1))
  [ "$count" -gt %MAX_RESTARTS% ] && { : > failed; exit 1; }
  echo "$count" > restarts
  sleep %RESTART_DELAY_S%
done
