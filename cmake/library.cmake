# libquire.a and libquire.so: the names of include/ and no others. Inner names are hidden (CMAKE_C_VISIBILITY_PRESET), which a shared library keeps to itself;
# for the archive all rooms become one object in which they are local.
set(quire_object ${CMAKE_BINARY_DIR}/quire.o)
add_custom_command(OUTPUT ${quire_object}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${quire_object} ${quire_objects}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${quire_object}
    DEPENDS ${quire_objects} COMMAND_EXPAND_LISTS VERBATIM COMMENT "Making one object of libquire's rooms")
set_source_files_properties(${quire_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(quire STATIC ${quire_object})
set_target_properties(quire PROPERTIES LINKER_LANGUAGE C)

# Until 1.0 a minor version may break what was linked with another, and is part of the name.
set(quire_version_script ${CMAKE_SOURCE_DIR}/cmake/quire.map)
add_library(quire_shared SHARED ${quire_objects})
set_target_properties(quire_shared PROPERTIES OUTPUT_NAME quire VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LINK_DEPENDS ${quire_version_script})
target_link_options(quire_shared PRIVATE -Wl,--version-script=${quire_version_script} -Wl,--as-needed)
if(NOT QUIRE_SANITIZE)
    target_link_options(quire_shared PRIVATE -Wl,-z,defs)
endif()
target_link_libraries(quire_shared PRIVATE ${QUIRE_LIBRARIES})
