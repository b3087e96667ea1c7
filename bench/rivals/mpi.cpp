// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Any MPI: built against its own header and library, started by its own mpiexec.
#include "mpi_ranks.hpp"

namespace {

using rivals::Collective;

class Mpi final : public rivals::MpiRanks {
 public:
  void run(Collective collective, float* data, float* block, std::size_t count) override {
    const int n = static_cast<int>(count), each = n / size();
    switch (collective) {
      case Collective::kAllreduce:
        MPI_Allreduce(MPI_IN_PLACE, data, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Collective::kAllreduceApart:
        MPI_Allreduce(data, block, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
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
};

}  // namespace

int main(int argc, char** argv) {
  rivals::bind_if_asked(rivals::launched_rank());
  return rivals::measure_over_mpi<Mpi>(argc, argv);
}
