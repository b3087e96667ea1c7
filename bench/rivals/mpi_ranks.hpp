// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include "measure.hpp"

namespace rivals {

/// Ranks that an mpiexec has started, with ordinary memory; MPI compares their times.
class MpiRanks : public Library {
 public:
  MpiRanks() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  float* allocate(std::size_t bytes) override {
    return static_cast<float*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  double max_over_ranks(double value) override {
    double most = 0;
    MPI_Allreduce(&value, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
  }

 private:
  int rank_ = 0, size_ = 1;
};

/// A library over such ranks, measured from MPI_Init() to MPI_Finalize().
template <class Over>
int measure_over_mpi(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 0;
  {
    Over library;
    code = measure(library, argc, argv);
  }
  MPI_Finalize();
  return code;
}

}  // namespace rivals
