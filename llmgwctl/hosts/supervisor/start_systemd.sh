message=$(mkdir -p "$units" 2>&1) || die $CANNOT_WRITE "cannot make $units: $message"
if [ ! -e "$units/$template" ]; then
  (umask 022; printf '%s\n' "$text" > "$units/$template.$$") && ln "$units/$template.$$" "$units/$template" 2>/dev/null && wrote=1
  rm -f "$units/$template.$$"
fi
same_template || die $CANNOT_WRITE "cannot write $units/$template"
$ctl reset-failed "$unit" 2>/dev/null
enabled=1
message=$($ctl enable --no-reload "$unit" 2>&1) || die $CANNOT_START "systemctl enable: $message"
message=$($ctl start --no-block "$unit" 2>&1) || die $CANNOT_START "systemctl start: $message"
