# Instruction sets of src/backend/cpu and src/bench, by file name: *_avx2.c and *_avx512.c are compiled for what their names say and called only where the
# processor has it. Other processors than x86-64 build the plain files alone.
option(QUIRE_EMULATE_AVX512 "Compile the AVX-512 kernels through SIMDe, so that a machine without it can test them (slow)" OFF)

file(GLOB isa_avx2 ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_avx2.c ${CMAKE_SOURCE_DIR}/src/bench/*_avx2.c)
file(GLOB isa_avx512 ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_avx512.c ${CMAKE_SOURCE_DIR}/src/bench/*_avx512.c)
set(isa_avx2_flags -mavx2 -mfma -mf16c)
set(isa_avx512_flags ${isa_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512bf16)
if(QUIRE_EMULATE_AVX512)
    set(isa_avx512_flags ${isa_avx2_flags} -DSIMD_EMULATE -Wno-psabi)
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/backend/cpu/cpu.c APPEND PROPERTY COMPILE_DEFINITIONS SIMD_EMULATE)
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set_property(SOURCE ${isa_avx2} APPEND PROPERTY COMPILE_OPTIONS ${isa_avx2_flags})
    set_property(SOURCE ${isa_avx512} APPEND PROPERTY COMPILE_OPTIONS ${isa_avx512_flags})
else()
    foreach(room quire_cpu quire_bench)
        get_target_property(isa_sources ${room} SOURCES)
        list(REMOVE_ITEM isa_sources ${isa_avx2} ${isa_avx512})
        set_property(TARGET ${room} PROPERTY SOURCES ${isa_sources})
    endforeach()
endif()
