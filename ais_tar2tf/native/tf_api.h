/* The part of TensorFlow's C API that `cut.c` calls, and the layout of a string in a tensor.

   TensorFlow keeps the C API and this layout from version to version, unlike its C++ classes. The declarations stand
   here so that the operation can be built where TensorFlow is not installed, as when a package is built. */

#ifndef AIS_TAR2TF_TF_API_H
#define AIS_TAR2TF_TF_API_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;

enum { TF_UINT8 = 4, TF_STRING = 7, TF_INT64 = 9, TF_BOOL = 10 };
enum { TF_OK = 0, TF_INVALID_ARGUMENT = 3, TF_RESOURCE_EXHAUSTED = 8 };

TF_Status *TF_NewStatus(void);
void TF_DeleteStatus(TF_Status *status);
void TF_SetStatus(TF_Status *status, int code, const char *message);
int TF_GetCode(const TF_Status *status);

TF_OpDefinitionBuilder *TF_NewOpDefinitionBuilder(const char *name);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder *builder, const char *input);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder *builder, const char *output);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder *builder, const char *attribute);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder *builder,
                                                     void (*function)(TF_ShapeInferenceContext *, TF_Status *));
void TF_ShapeInferenceContextSetUnknownShape(TF_ShapeInferenceContext *context, TF_Status *status);
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder *builder, TF_Status *status);

TF_KernelBuilder *TF_NewKernelBuilder(const char *op, const char *device, void *(*create)(TF_OpKernelConstruction *),
                                      void (*compute)(void *, TF_OpKernelContext *), void (*destroy)(void *));
void TF_RegisterKernelBuilder(const char *name, TF_KernelBuilder *builder, TF_Status *status);

int TF_NumInputs(TF_OpKernelContext *context);
int TF_NumOutputs(TF_OpKernelContext *context);
void TF_GetInput(TF_OpKernelContext *context, int number, TF_Tensor **tensor, TF_Status *status);
TF_Tensor *TF_AllocateOutput(TF_OpKernelContext *context, int number, int type, const int64_t *dims, int rank,
                             size_t bytes, TF_Status *status);
void TF_OpKernelContext_Failure(TF_OpKernelContext *context, TF_Status *status);
int TF_NumDims(const TF_Tensor *tensor);
int64_t TF_Dim(const TF_Tensor *tensor, int number);
void *TF_TensorData(const TF_Tensor *tensor);
void TF_DeleteTensor(TF_Tensor *tensor);

/* A string of up to 22 bytes stands in place. A longer one is in memory that TensorFlow gives back by `free`. The two
   lowest bits of the first byte tell them apart. A tensor's new strings are small and empty: all bytes are 0. */
typedef union {
    struct {
        uint8_t size; /* shifted left by 2 */
        char text[23];
    } small;
    struct {
        size_t size; /* shifted left by 2, plus LARGE_STRING */
        size_t capacity;
        char *text;
    } large;
} TensorString;

enum { SMALL_STRING_BYTES = 22, LARGE_STRING = 1 };

_Static_assert(sizeof(TensorString) == 24, "TensorFlow's strings have 24 bytes");
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the layout of TensorFlow's strings is another one on big-endian machines"
#endif

/* Gives a new string its size, and returns where its bytes are to be written; NULL if there is no memory. */
static inline char *set_size(TensorString *string, size_t size) {
    char *text = string->small.text;
    if (size > SMALL_STRING_BYTES) {
        size_t room = (size + 1 + 15) & ~(size_t)15;
        text = malloc(room);
        if (text == NULL) return NULL;
        string->large.size = size << 2 | LARGE_STRING;
        string->large.capacity = room - 1;
        string->large.text = text;
    } else {
        string->small.size = (uint8_t)(size << 2);
    }
    text[size] = 0;
    return text;
}

/* Returns where the bytes of a string are. */
static inline char *text_of(TensorString *string) {
    return (string->small.size & 3) == LARGE_STRING ? string->large.text : string->small.text;
}

#endif
