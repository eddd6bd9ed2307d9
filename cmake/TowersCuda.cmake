# The CUDA backend: nvcc for the kernels, C for everything else. Sets TOWERS_HAVE_CUDA and TOWERS_CUDA_STATE.
#
# nvcc is called by rules of our own, and libraries are found by name: that works with a system toolkit, with Python wheels
# and with distribution packages alike, links with the C compiler, and lets sanitizers of the host code be.
# Code of X.0 runs on all later X.y (CUDA C++ Programming Guide, "Binary Compatibility"): 8.0 on 8.6 and 8.9, 10.0 on 10.3, 12.0 on
# 12.1. The driver compiles the last one's PTX for what has no code here: 11.0, what is newer, and Blackwell if CUDA is older than 12.8.
# Volta (7.0) is left out: CUDA 13 and cuDNN 9.11 do not support it any more.
set(TOWERS_CUDA_ARCHITECTURES "75;80;100;120;90" CACHE STRING "GPUs to compile for, as compute capabilities, the last one also as PTX")
set(TOWERS_CUDA_HOST_COMPILER "" CACHE STRING "C++ compiler that nvcc uses for its host code (default: its own choice)")

# cuda_missing(WHAT): the backend cannot be built; an error if it was asked for
macro(cuda_missing what)
  set(TOWERS_CUDA_STATE "no: ${what}")
  if(TOWERS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TOWERS_CUDA=ON, but ${what}")
  endif()
endmacro()

find_program(TOWERS_NVCC nvcc HINTS ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda PATH_SUFFIXES bin)
if(NOT TOWERS_NVCC)
  cuda_missing("nvcc was not found: install a CUDA toolkit (scripts/cuda_from_pip.sh makes one without root), or set CUDAToolkit_ROOT")
  return()
endif()
execute_process(COMMAND ${TOWERS_NVCC} --version OUTPUT_VARIABLE nvcc_text ERROR_VARIABLE nvcc_text RESULT_VARIABLE nvcc_result)
if(NOT nvcc_result EQUAL 0 OR NOT nvcc_text MATCHES "release ([0-9]+\\.[0-9]+)")
  cuda_missing("${TOWERS_NVCC} does not run")
  return()
endif()
set(TOWERS_NVCC_VERSION ${CMAKE_MATCH_1})
if(TOWERS_NVCC_VERSION VERSION_LESS 12.0)
  cuda_missing("CUDA ${TOWERS_NVCC_VERSION} is too old (wanted 12.0 or newer)")
  return()
endif()

include(NvidiaRoots)
find_path(CUDART_INCLUDE_DIR cuda_runtime_api.h HINTS ${NVIDIA_ROOTS} PATH_SUFFIXES include targets/x86_64-linux/include)
find_path(CUBLAS_INCLUDE_DIR cublasLt.h HINTS ${NVIDIA_ROOTS} PATH_SUFFIXES include targets/x86_64-linux/include)
set(cuda_lib_folders lib64 lib targets/x86_64-linux/lib lib/x86_64-linux-gnu)
find_library(CUDART_LIBRARY NAMES cudart_static cudart libcudart.so.13 libcudart.so.12 NAMES_PER_DIR HINTS ${NVIDIA_ROOTS} PATH_SUFFIXES ${cuda_lib_folders})
find_library(CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12 NAMES_PER_DIR HINTS ${NVIDIA_ROOTS} PATH_SUFFIXES ${cuda_lib_folders})
mark_as_advanced(CUDART_INCLUDE_DIR CUBLAS_INCLUDE_DIR CUDART_LIBRARY CUBLASLT_LIBRARY TOWERS_NVCC)
find_package(CUDNN 9.0 QUIET) # joined convolutions need 9.8, and ask for it
find_package(NCCL 2.18 QUIET)
set(cuda_lacks)
if(NOT CUDART_INCLUDE_DIR OR NOT CUDART_LIBRARY)
  list(APPEND cuda_lacks "the CUDA runtime")
endif()
if(NOT CUBLAS_INCLUDE_DIR OR NOT CUBLASLT_LIBRARY)
  list(APPEND cuda_lacks "cuBLASLt")
endif()
if(NOT CUDNN_FOUND)
  list(APPEND cuda_lacks "cuDNN 9 (CUDNN_ROOT; 9.8 or newer joins convolutions and batch norms)")
endif()
if(NOT NCCL_FOUND)
  list(APPEND cuda_lacks "NCCL 2.18 or newer (NCCL_ROOT)")
endif()
if(cuda_lacks)
  list(JOIN cuda_lacks ", " cuda_lacks)
  cuda_missing("nvcc ${TOWERS_NVCC_VERSION} is there, but not: ${cuda_lacks}")
  return()
endif()

# ---- kernels
set(cuda_codes)
set(cuda_built)
foreach(arch ${TOWERS_CUDA_ARCHITECTURES})
  string(REGEX REPLACE "[a-z]" "" number ${arch})
  if((number GREATER_EQUAL 100 AND TOWERS_NVCC_VERSION VERSION_LESS 12.8) OR (number LESS 75 AND TOWERS_NVCC_VERSION VERSION_GREATER_EQUAL 13.0))
    message(STATUS "CUDA ${TOWERS_NVCC_VERSION} cannot compile for sm_${arch}: left out")
  else()
    list(APPEND cuda_codes -gencode=arch=compute_${arch},code=sm_${arch})
    list(APPEND cuda_built ${arch})
  endif()
endforeach()
if(NOT cuda_built)
  cuda_missing("CUDA ${TOWERS_NVCC_VERSION} compiles for none of TOWERS_CUDA_ARCHITECTURES (${TOWERS_CUDA_ARCHITECTURES})")
  return()
endif()
list(GET cuda_built -1 last)
list(APPEND cuda_codes -gencode=arch=compute_${last},code=compute_${last})
set(cuda_flags -std=c++17 -O3 -lineinfo --expt-relaxed-constexpr -I${CMAKE_SOURCE_DIR} -I${CUDART_INCLUDE_DIR}
  -Xcompiler=-fPIC,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wall,-Wextra,-Wno-unused-parameter,-Wno-missing-field-initializers)
if(TOWERS_WERROR)
  list(APPEND cuda_flags -Werror=all-warnings -Xcompiler=-Werror)
endif()
if(TOWERS_CUDA_HOST_COMPILER)
  list(APPEND cuda_flags -ccbin=${TOWERS_CUDA_HOST_COMPILER})
endif()
file(GLOB cuda_kernels CONFIGURE_DEPENDS kernels/cuda/*.cu)
set(cuda_objects)
foreach(source ${cuda_kernels})
  get_filename_component(stem ${source} NAME_WE)
  set(object ${CMAKE_BINARY_DIR}/cuda/${stem}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -DLOG=${CMAKE_BINARY_DIR}/cuda/${stem}.log -P ${CMAKE_SOURCE_DIR}/cmake/nvcc_logged.cmake --
            ${TOWERS_NVCC} ${cuda_flags} -Xptxas=-v ${cuda_codes} -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${stem}.cu" VERBATIM)
  list(APPEND cuda_objects ${object})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)

# ---- host code
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON) # the libraries may lie where only this build looks, as in Python wheels
file(GLOB_RECURSE CUDA_SOURCES CONFIGURE_DEPENDS kernels/cuda/*.c)
add_library(towers_cuda STATIC ${CUDA_SOURCES} nccl_sync/comm_nccl.c nccl_sync/comm_nccl_sum.c nccl_sync/comm_nccl_memory.c ${cuda_objects})
set_source_files_properties(${cuda_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
target_include_directories(towers_cuda SYSTEM PUBLIC ${CUDART_INCLUDE_DIR} ${CUBLAS_INCLUDE_DIR})
# cuBLASLt is here for its folder, where cublas_library.c finds it: programs are linked with what they need only
target_link_libraries(towers_cuda PUBLIC towers_flags towers_lib CUDNN::cudnn NCCL::NCCL ${CUBLASLT_LIBRARY} ${CUDART_LIBRARY} Threads::Threads rt dl m)
target_link_libraries(towers_backends INTERFACE towers_cuda)
target_compile_definitions(towers_flags INTERFACE TOWERS_HAVE_CUDA=1)
set(TOWERS_HAVE_CUDA ON)
list(JOIN cuda_built " " cuda_built)
set(TOWERS_CUDA_STATE "yes: CUDA ${TOWERS_NVCC_VERSION}, cuDNN ${CUDNN_VERSION}, NCCL ${NCCL_VERSION}, for sm ${cuda_built}")
