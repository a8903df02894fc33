# Our headers for Doxygen, which reads no plain comments: a comment before a declaration is about what follows, one at
# the end of a line, with the lines under it that begin in its column, about that line, and the first one about the file.
function escaped(text) {
  gsub(/[\\<>#@&%~]/, "\\\\&", text)
  gsub(/--/, "\\--", text)
  return text
}

# Where a comment begins in a line of code, outside of its string literals; 0: nowhere.
function comment_at(line, i, c, in_text) {
  for (i = 1; i < length(line); ++i) {
    c = substr(line, i, 1)
    if (c == "\\") ++i
    else if (c == "\"") in_text = !in_text
    else if (!in_text && substr(line, i, 2) == "//") return i
  }
  return 0
}

function end_figure() {
  if (in_figure) print "/// \\endverbatim"
  in_figure = 0
}

{
  at = comment_at($0)
  text = substr($0, at + 2)
  before = substr($0, 1, at - 1)
  alone = at > 0 && before ~ /^ *$/
  if (alone && column == at) {
    print before "///<" escaped(text)
    next
  }
  if (!alone || text !~ /^(   |$)/) end_figure()
  column = 0
  if (alone) {
    if (!has_file++) print "/// \\file"
    if (text ~ /^   /) { # laid out by hand
      if (!in_figure) print "/// \\verbatim"
      in_figure = 1
      print "///" text
    } else {
      print before "///" escaped(text)
    }
  } else if (at > 0 && $0 !~ /^[}#]/) {
    column = at
    print before "///<" escaped(text)
  } else {
    print
  }
}
