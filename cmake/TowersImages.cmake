# Image formats whose libraries a build may lack: each is used where it is found (AUTO), demanded (ON) or left out (OFF). What
# pkg_check_modules has found stays in the cache, so that OFF is asked once more.
# TOWERS_IMAGES_LIBRARIES, TOWERS_IMAGES_LACKING (the files of the others, as a pattern) and TOWERS_IMAGES_STATE follow.
set(TOWERS_IMAGES_LIBRARIES "")
set(TOWERS_IMAGES_STATE "JPEG PNG WebP PNM BMP")
set(TOWERS_IMAGES_LACKING "none")

macro(towers_images_found format target words)
  list(APPEND TOWERS_IMAGES_LIBRARIES ${target})
  target_compile_definitions(towers_flags INTERFACE TOWERS_HAVE_${format}=1)
  string(APPEND TOWERS_IMAGES_STATE " ${words}")
endmacro()

macro(towers_images_lacking format file package)
  string(APPEND TOWERS_IMAGES_LACKING "|${file}")
  if(TOWERS_${format} STREQUAL "ON")
    message(FATAL_ERROR "TOWERS_${format}=ON, but its library was not found: install ${package}")
  elseif(NOT TOWERS_${format} STREQUAL "OFF")
    message(STATUS "images of ${format} are left out: they need ${package}")
  endif()
endmacro()

if(NOT TOWERS_GIF STREQUAL "OFF")
  find_package(GIF 5 QUIET)
endif()
if(GIF_FOUND)
  towers_images_found(GIF GIF::GIF GIF)
else()
  towers_images_lacking(GIF gif libgif-dev)
endif()

if(NOT TOWERS_TIFF STREQUAL "OFF")
  pkg_check_modules(TIFF QUIET IMPORTED_TARGET libtiff-4>=4.5) # since then each file has its own messages
endif()
if(TIFF_FOUND AND NOT TOWERS_TIFF STREQUAL "OFF")
  towers_images_found(TIFF PkgConfig::TIFF TIFF)
else()
  towers_images_lacking(TIFF tiff "libtiff-dev of version 4.5 or newer")
endif()

if(NOT TOWERS_HEIF STREQUAL "OFF")
  # Since 1.19 its codecs are plugins, of which the encoder x265 (GPL) is one; older ones keep a thread for each damaged file.
  pkg_check_modules(HEIF QUIET IMPORTED_TARGET libheif>=1.19)
endif()
if(HEIF_FOUND AND NOT TOWERS_HEIF STREQUAL "OFF")
  towers_images_found(HEIF PkgConfig::HEIF "HEIC AVIF")
else()
  towers_images_lacking(HEIF heif "libheif-dev of version 1.19 or newer")
endif()
