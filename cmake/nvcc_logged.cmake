# Runs nvcc and keeps what it tells of registers and memory: cmake -DLOG=FILE -P nvcc_logged.cmake -- NVCC ARGUMENT...
#
# With -Xptxas=-v the assembler reports every kernel for every architecture ("ptxas info"). That goes to LOG, for
# scripts/measure/cuda_kernel_table.sh; all other words, warnings and errors, go to the console.
math(EXPR last "${CMAKE_ARGC} - 1")
set(command)
set(found no)
foreach(i RANGE ${last})
  if(found)
    list(APPEND command ${CMAKE_ARGV${i}})
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(found yes)
  endif()
endforeach()
execute_process(COMMAND ${command} OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE result)
file(WRITE ${LOG} "${text}")
string(REGEX REPLACE "(ptxas info|    [0-9]+ bytes stack frame)[^\n]*\n" "" others "${text}")
if(NOT others STREQUAL "")
  message("${others}")
endif()
if(NOT result EQUAL 0)
  file(REMOVE ${LOG})
  message(FATAL_ERROR "nvcc failed")
endif()
