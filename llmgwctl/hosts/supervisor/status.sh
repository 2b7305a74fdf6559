# It works in /, since a stop ends what works in the folder.
cd /
[ -d "$dir" ] || { echo "absent 0"; exit 0; }
[ -x "$dir" ] || die $STILL_THERE "cannot look into $dir"
supervisor=$(cat "$dir/supervisor" 2>/dev/null)
case "$supervisor" in
systemd*)
  ctl=systemctl
  [ "$supervisor" = systemd-user ] && { user_units >/dev/null; ctl="systemctl --user"; }
  $ctl show -p ActiveState,SubState,Job,NRestarts,Result,ExecMainCode,ExecMainStatus "$unit" ;;
setsid)
  SID= begun=; { read -r SID begun < "$dir/session"; } 2>/dev/null
  restarts=$(cat "$dir/restarts" 2>/dev/null || echo 0)
  status=$(cat "$dir/exit" 2>/dev/null)
  child=$(cat "$dir/pid" 2>/dev/null)
  if [ -n "$SID" ] && look "$SID" && [ "$B" = "$begun" ] && [ -n "$child" ] && [ ! -e "$dir/failed" ] && kill -0 "$child" 2>/dev/null
  then echo "alive $restarts"
  else echo "ended $restarts $status"
  fi ;;
*) echo "absent 0" ;;
esac
