// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/request.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace farandole::coordinator {
namespace {

TensorRequest example() {
  TensorRequest request;
  request.name = "x";
  request.dtype = DType::kFloat32;
  request.shape = {2, 3};
  return request;
}

bool agrees(const TensorRequest& request, const std::function<void(TensorRequest&)>& change) {
  TensorRequest other = request;
  change(other);
  EXPECT_EQ(agree(request, other), agree(other, request));
  return agree(request, other);
}

// Goal: ranks agree on everything that makes one operation of their requests, and on no more.
// Method: change one term at a time, of collectives for which it counts and for which not.
TEST(Agree, ComparesWhatMatters) {
  const TensorRequest sum = example();
  EXPECT_TRUE(agrees(sum, [](TensorRequest&) {}));
  EXPECT_TRUE(agrees(sum, [](TensorRequest& r) { r.root = 1; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.collective = Collective::kAllgather; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.reduction = Reduction::kMax; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.adasum = true; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.dtype = DType::kInt32; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.shape = {3, 3}; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.shape = {2, 3, 1}; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.device = 0; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.group = "g"; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.group_size = 2; }));

  TensorRequest on_device = sum;
  on_device.device = 0;
  EXPECT_TRUE(agrees(on_device, [](TensorRequest& r) { r.device = 3; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.prescale = 2; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.postscale = 2; }));
  EXPECT_FALSE(agrees(sum, [](TensorRequest& r) { r.leaves_out_joined = true; }));
  TensorRequest scaled = sum;
  scaled.prescale = scaled.postscale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(agree(scaled, scaled));
  TensorRequest adasum = sum;
  adasum.adasum = true;
  EXPECT_TRUE(agrees(adasum, [](TensorRequest& r) { r.reduction = Reduction::kMax; }));
  TensorRequest broadcast = sum;
  broadcast.collective = Collective::kBroadcast;
  EXPECT_TRUE(agrees(broadcast, [](TensorRequest& r) { r.reduction = Reduction::kMax; }));
  EXPECT_FALSE(agrees(broadcast, [](TensorRequest& r) { r.root = 1; }));
  TensorRequest barrier = sum;
  barrier.collective = Collective::kBarrier;
  EXPECT_TRUE(agrees(barrier, [](TensorRequest& r) { r.dtype = DType::kInt8, r.shape = {}; }));
}

TEST(Agree, LeavesTheRowsOfEachRankToIt) {
  for (const Collective collective : {Collective::kAllgather, Collective::kAlltoall}) {
    TensorRequest request = example();
    request.collective = collective;
    EXPECT_TRUE(agrees(request, [](TensorRequest& r) { r.shape = {9, 3}; }));
    EXPECT_FALSE(agrees(request, [](TensorRequest& r) { r.shape = {2, 4}; }));
    EXPECT_FALSE(agrees(request, [](TensorRequest& r) { r.shape = {}; }));
    request.shape = {};
    EXPECT_TRUE(agree(request, request));
  }
}

// Goal: texts for messages say what ranks can disagree on.
// Method: examples.
TEST(Describe, TellsTheTerms) {
  TensorRequest request = example();
  EXPECT_EQ(describe(request), "allreduce sum float32[2, 3]");
  request.prescale = 0.1;
  request.postscale = 3;
  request.shape = {};
  EXPECT_EQ(describe(request), "allreduce sum prescaled by 0.1 postscaled by 3 float32[]");
  request.reduction = Reduction::kAverage;
  request.leaves_out_joined = true;
  request.prescale = request.postscale = 1;
  EXPECT_EQ(describe(request), "allreduce average of ranks that have not joined float32[]");
  request.leaves_out_joined = false;
  request.adasum = true;
  request.device = 2;
  EXPECT_EQ(describe(request), "allreduce adasum float32[] on device 2");
  request.collective = Collective::kBroadcast;
  request.root = 5;
  request.group = "g";
  request.group_size = 3;
  EXPECT_EQ(describe(request), "broadcast float32[] from rank 5 on device 2 in group 'g' of 3");
  request = TensorRequest();
  request.collective = Collective::kBarrier;
  EXPECT_EQ(describe(request), "barrier");
}

}  // namespace
}  // namespace farandole::coordinator
