# cmake -DOUT=file.c -DFILES=a.yaml;b.yaml -DHEADER=folder/x.h -DTABLE=Type name -P embed_texts.cmake: the texts as rows {name, text} of a
# table that the header declares.
set(rows "")
foreach(path IN LISTS FILES)
  get_filename_component(name "${path}" NAME_WE)
  file(READ "${path}" text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
  string(APPEND rows "    {\"${name}\",\n     \"${text}\"},\n")
endforeach()
file(WRITE "${OUT}" "/* Made from the files of those names; do not edit. */\n#include \"${HEADER}\"\n\nconst ${TABLE}[] = {\n${rows}    {0},\n};\n")
