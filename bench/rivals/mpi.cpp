// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Any MPI: built against its own header and library, started by its own mpiexec.
#include <mpi.h>

#include "measure.hpp"

namespace {

using rivals::Collective;

class Mpi final : public rivals::Library {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  float* allocate(std::size_t bytes) override {
    return static_cast<float*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  }
  void run(Collective collective, float* data, float* block, std::size_t count) override {
    const int n = static_cast<int>(count), each = n / size_;
    switch (collective) {
      case Collective::kAllreduce:
        MPI_Allreduce(MPI_IN_PLACE, data, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Collective::kReducescatter:
        MPI_Reduce_scatter_block(data, block, each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Collective::kAllgather:
        MPI_Allgather(block, each, MPI_FLOAT, data, each, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case Collective::kBroadcast:
        MPI_Bcast(data, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
    }
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

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 0;
  {
    Mpi mpi;
    code = rivals::measure(mpi, argc, argv);
  }
  MPI_Finalize();
  return code;
}
