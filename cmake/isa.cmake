# Instruction sets of src/backend/cpu and src/lab/bench, by file name: *_avx2.c, *_avx512.c, *_avx512bf16.c, *_neon.c and *_i8mm.c are
# compiled for what their names say and called only where the processor has it. Each processor builds its own ones, and the plain files.
file(GLOB isa_avx2 ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_avx2.c ${CMAKE_SOURCE_DIR}/src/lab/bench/*_avx2.c)
file(GLOB isa_avx512 ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_avx512.c ${CMAKE_SOURCE_DIR}/src/lab/bench/*_avx512.c)
file(GLOB isa_avx512bf16 ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_avx512bf16.c ${CMAKE_SOURCE_DIR}/src/lab/bench/*_avx512bf16.c)
file(GLOB isa_neon ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_neon.c)
file(GLOB isa_i8mm ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_i8mm.c)
set(isa_avx2_flags -mavx2 -mfma -mf16c)
set(isa_avx512_flags ${isa_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
set(isa_avx512bf16_flags ${isa_avx512_flags} -mavx512bf16)

# At -O1 gcc emits no vzeroupper, and code without AVX that runs after such a kernel takes some 30 times as long: -fexpensive-optimizations brings it
# back. Following variables through registers takes half of these files' time to compile.
if(CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_BUILD_TYPE STREQUAL Debug)
    set_property(SOURCE ${isa_avx2} ${isa_avx512} ${isa_avx512bf16} APPEND PROPERTY COMPILE_OPTIONS -fexpensive-optimizations -fno-var-tracking)
endif()

# The runners of attention programs are plain loops, of which the compiler makes vectors.
set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/backend/cpu/attention_run_avx2.c ${CMAKE_SOURCE_DIR}/src/backend/cpu/attention_run_avx512.c
    ${CMAKE_SOURCE_DIR}/src/backend/cpu/attention_run_neon.c APPEND PROPERTY COMPILE_OPTIONS -O3 -fno-trapping-math)

set(isa_neon_flags -march=armv8.2-a+dotprod)
set(isa_i8mm_flags ${isa_neon_flags}+i8mm)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set_property(SOURCE ${isa_avx2} APPEND PROPERTY COMPILE_OPTIONS ${isa_avx2_flags})
    set_property(SOURCE ${isa_avx512} APPEND PROPERTY COMPILE_OPTIONS ${isa_avx512_flags})
    set_property(SOURCE ${isa_avx512bf16} APPEND PROPERTY COMPILE_OPTIONS ${isa_avx512bf16_flags})
    set(isa_foreign ${isa_neon} ${isa_i8mm})
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set_property(SOURCE ${isa_neon} APPEND PROPERTY COMPILE_OPTIONS ${isa_neon_flags})
    set_property(SOURCE ${isa_i8mm} APPEND PROPERTY COMPILE_OPTIONS ${isa_i8mm_flags})
    set(isa_foreign ${isa_avx2} ${isa_avx512} ${isa_avx512bf16})
else()
    set(isa_foreign ${isa_avx2} ${isa_avx512} ${isa_avx512bf16} ${isa_neon} ${isa_i8mm})
endif()

# They take most of a tree's time to compile, and are the same in every build type: another tree may have them.
set(QUIRE_KERNELS_FROM "" CACHE PATH "A release tree, built with the same compiler, whose objects of the CPU's kernels are linked in place of this one's")
set(quire_kernels_of_cpu)
if(QUIRE_KERNELS_FROM)
    file(GLOB isa_kernels RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_avx*.c)
    list(TRANSFORM isa_kernels PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE isa_linked)
    list(APPEND isa_foreign ${isa_linked})
    list(TRANSFORM isa_kernels REPLACE "(.+)" "${QUIRE_KERNELS_FROM}/CMakeFiles/quire_cpu.dir/\\1.o" OUTPUT_VARIABLE quire_kernels_of_cpu)
endif()
foreach(room quire_cpu quire_lab_bench)
    get_target_property(isa_sources ${room} SOURCES)
    list(REMOVE_ITEM isa_sources ${isa_foreign})
    set_property(TARGET ${room} PROPERTY SOURCES ${isa_sources})
endforeach()
