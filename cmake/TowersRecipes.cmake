# Recipes travel inside the binary: every inception/recipes/*.yaml becomes a string of generated/recipes.c.
file(GLOB RECIPE_FILES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/inception/recipes/*.yaml)
set(RECIPES_C ${CMAKE_BINARY_DIR}/generated/recipes.c)
add_custom_command(OUTPUT ${RECIPES_C}
  COMMAND ${CMAKE_COMMAND} "-DOUT=${RECIPES_C}" "-DFILES=${RECIPE_FILES}" -P ${CMAKE_SOURCE_DIR}/cmake/embed_texts.cmake
  DEPENDS ${RECIPE_FILES} ${CMAKE_SOURCE_DIR}/cmake/embed_texts.cmake VERBATIM)
