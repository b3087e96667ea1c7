// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "farandole/farandole.h"
#include "farandole/farandole.hpp"

// The constants of the C interface are those of the C++ interface, except that a status has
// FARANDOLE_OK before the kinds of errors. Neither may change.
namespace farandole::abi {

constexpr farandole_status status_of(ErrorKind kind) {
  return static_cast<farandole_status>(kind) + 1;
}

static_assert(status_of(ErrorKind::kInvalidArgument) == FARANDOLE_INVALID_ARGUMENT);
static_assert(status_of(ErrorKind::kUnsupported) == FARANDOLE_UNSUPPORTED);
static_assert(status_of(ErrorKind::kMismatch) == FARANDOLE_MISMATCH);
static_assert(status_of(ErrorKind::kTimedOut) == FARANDOLE_TIMED_OUT);
static_assert(status_of(ErrorKind::kRankFailed) == FARANDOLE_RANK_FAILED);
static_assert(status_of(ErrorKind::kInternal) == FARANDOLE_INTERNAL);
static_assert(status_of(ErrorKind::kAborted) == FARANDOLE_ABORTED);

template <class Enum>
constexpr bool same(Enum ours, int constant) {
  return static_cast<int>(ours) == constant;
}

static_assert(same(DType::kBool, FARANDOLE_BOOL));
static_assert(same(DType::kInt8, FARANDOLE_INT8));
static_assert(same(DType::kInt16, FARANDOLE_INT16));
static_assert(same(DType::kInt32, FARANDOLE_INT32));
static_assert(same(DType::kInt64, FARANDOLE_INT64));
static_assert(same(DType::kUInt8, FARANDOLE_UINT8));
static_assert(same(DType::kUInt16, FARANDOLE_UINT16));
static_assert(same(DType::kUInt32, FARANDOLE_UINT32));
static_assert(same(DType::kUInt64, FARANDOLE_UINT64));
static_assert(same(DType::kFloat16, FARANDOLE_FLOAT16));
static_assert(same(DType::kBFloat16, FARANDOLE_BFLOAT16));
static_assert(same(DType::kFloat32, FARANDOLE_FLOAT32));
static_assert(same(DType::kFloat64, FARANDOLE_FLOAT64));
static_assert(same(DType::kComplex64, FARANDOLE_COMPLEX64));
static_assert(same(DType::kComplex128, FARANDOLE_COMPLEX128));
static_assert(same(DType::kFloat8E4M3, FARANDOLE_FLOAT8_E4M3));
static_assert(same(DType::kFloat8E5M2, FARANDOLE_FLOAT8_E5M2));
static_assert(kDTypeCount == FARANDOLE_FLOAT8_E5M2 + 1);

static_assert(same(Reduction::kSum, FARANDOLE_SUM));
static_assert(same(Reduction::kProduct, FARANDOLE_PRODUCT));
static_assert(same(Reduction::kMin, FARANDOLE_MIN));
static_assert(same(Reduction::kMax, FARANDOLE_MAX));
static_assert(same(Reduction::kAverage, FARANDOLE_AVERAGE));
static_assert(same(Reduction::kLogicalAnd, FARANDOLE_LOGICAL_AND));
static_assert(same(Reduction::kLogicalOr, FARANDOLE_LOGICAL_OR));
static_assert(same(Reduction::kLogicalXor, FARANDOLE_LOGICAL_XOR));
static_assert(same(Reduction::kBitwiseAnd, FARANDOLE_BITWISE_AND));
static_assert(same(Reduction::kBitwiseOr, FARANDOLE_BITWISE_OR));
static_assert(same(Reduction::kBitwiseXor, FARANDOLE_BITWISE_XOR));
static_assert(same(Reduction::kPremultipliedSum, FARANDOLE_PREMULTIPLIED_SUM));
static_assert(kReductionCount == FARANDOLE_PREMULTIPLIED_SUM + 1);

static_assert(same(Collective::kAllreduce, FARANDOLE_ALLREDUCE));
static_assert(same(Collective::kReduce, FARANDOLE_REDUCE));
static_assert(same(Collective::kBroadcast, FARANDOLE_BROADCAST));
static_assert(same(Collective::kReducescatter, FARANDOLE_REDUCESCATTER));
static_assert(same(Collective::kAllgather, FARANDOLE_ALLGATHER));
static_assert(same(Collective::kGather, FARANDOLE_GATHER));
static_assert(same(Collective::kScatter, FARANDOLE_SCATTER));
static_assert(same(Collective::kAlltoall, FARANDOLE_ALLTOALL));
static_assert(same(Collective::kBarrier, FARANDOLE_BARRIER));
static_assert(kCollectiveCount == FARANDOLE_BARRIER + 1);

static_assert(same(Message::Kind::kSend, FARANDOLE_SEND));
static_assert(same(Message::Kind::kReceive, FARANDOLE_RECEIVE));

// The first sizes of the structs: the least that a caller may have been compiled with.
inline constexpr std::size_t kRanksSizeMin = 32, kArgumentsSizeMin = 96, kMessageSizeMin = 40,
                             kOptionsSizeMin = 48, kStoreSizeMin = 56, kJobSizeMin = 112;
inline constexpr std::size_t kStructSizeMax = 4096;  // anything larger is no struct_size

static_assert(offsetof(farandole_error, message) == 40);
static_assert(offsetof(farandole_ranks, cross_size) + 4 == kRanksSizeMin);
static_assert(offsetof(farandole_arguments, reserved) + 4 == kArgumentsSizeMin);
static_assert(offsetof(farandole_message, reserved) + 4 == kMessageSizeMin);
static_assert(offsetof(farandole_options, reserved) + 4 == kOptionsSizeMin);
static_assert(offsetof(farandole_store, reserved) + 4 == kStoreSizeMin);
static_assert(offsetof(farandole_job, start_timeout_ms) + 4 == kJobSizeMin);
static_assert(offsetof(farandole_api, on_complete) == 16 + 24 * sizeof(void (*)()));

}  // namespace farandole::abi
