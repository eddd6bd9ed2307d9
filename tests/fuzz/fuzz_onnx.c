/* libFuzzer target of the metadata of ONNX files, with arbitrary bytes. */

#include "towers/store/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    OnnxAbout *about;
    size_t letters = 0;
    if (onnx_about_parse(data, size, "fuzz", &about) != OK) return 0;
    for (int i = 0; i < onnx_about_count(about); i++) {
        StPair pair = onnx_about_at(about, i);
        letters += strlen(pair.key) + strlen(pair.value);
    }
    onnx_about_close(about);
    return letters > size + 1; /* libFuzzer refuses any result but 0 */
}
