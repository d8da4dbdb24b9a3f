# cmake -DHEADERS=<list file> -DROOT=<folder> -DTEMPLATE=<file> -DOUTPUT=<file> -P header_hash.cmake
#
# Writes OUTPUT from TEMPLATE with @ESPALIER_HEADER_HASH@: a hash of the public headers without comments and white space,
# so that a comment or a reformatted line leaves the identity of the build alone. OUTPUT keeps its time stamp when nothing changed.
cmake_policy(VERSION 3.25)
file(STRINGS "${HEADERS}" headers)
list(SORT headers)
set(literal "\"([^\"\\\n]|\\\\.)*\"|'([^'\\\n]|\\\\.)'")
set(digests "")
foreach(header IN LISTS headers)
  file(READ "${header}" text)
  # One pass from left to right: a token (kept), then the comments after it (dropped). A literal is one token, so that the
  # slashes of "http://x" start no comment. The new line in front lets a file begin with a comment.
  string(REGEX REPLACE "(${literal}|[^\"'/]+|/)(//[^\n]*|/\\*([^*]|\\*+[^*/])*\\*+/)*" "\\1" text "\n${text}")
  string(REGEX REPLACE "[ \t\r\n]+" "" text "${text}")
  string(SHA256 digest "${text}")
  file(RELATIVE_PATH name "${ROOT}" "${header}")
  string(APPEND digests "${name} ${digest}\n")
endforeach()
string(SHA256 ESPALIER_HEADER_HASH "${digests}")
string(SUBSTRING "${ESPALIER_HEADER_HASH}" 0 16 ESPALIER_HEADER_HASH)
configure_file("${TEMPLATE}" "${OUTPUT}" @ONLY)
