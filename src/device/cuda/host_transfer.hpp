// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cpu/memory.hpp"
#include "device/cuda/gpu.hpp"
#include "device/cuda/staging_ring.hpp"
#include "device/host_transfer.hpp"

namespace farandole::cuda {

/// The host transfer of one GPU: two streams of its own, one that copies to the host and one that
/// copies back, and staging memory that is library memory, so that peers read it where it lies.
/// Up to 4 KiB everything goes on the caller's stream, if that waits for the call anyway.
///
/// Where streams cannot wait for words, or FARANDOLE_DEVICE_WORDS is 0, the host waits instead.
class CudaHostTransfer final : public HostTransfer {
 public:
  /// Waits for all work of the GPU, as the driver does when memory is registered.
  static Result<std::unique_ptr<HostTransfer>> create(std::shared_ptr<const Gpu> gpu,
                                                      std::shared_ptr<farandole::Memory> memory);
  /// Waits until the device is done with the staging memory; every gate must be open by then.
  ~CudaHostTransfer() override;
  CudaHostTransfer(const CudaHostTransfer&) = delete;
  CudaHostTransfer& operator=(const CudaHostTransfer&) = delete;

  Result<std::unique_ptr<Pass>> begin(void* stream, bool blocks, std::size_t bytes,
                                      std::size_t pieces) override;
  std::size_t pieces_at_once(std::size_t bytes) const override;

 private:
  class CallPass;
  /// The words of one piece, each in a line of its own.
  struct Words {
    alignas(64) std::atomic<std::uint32_t> in{0};  // the device writes it
    alignas(64) std::atomic<std::uint32_t> out{0};
  };
  /// Staging memory of one piece that was too large for the ring. Kept for the next such piece.
  struct Large {
    std::uint64_t place = 0;
    std::shared_ptr<std::byte> memory;
    std::size_t bytes = 0;
    EventPool::Held end;  // null: not enqueued yet
  };
  CudaHostTransfer(std::shared_ptr<const Gpu> gpu, std::shared_ptr<farandole::Memory> memory,
                   OwnStream out, OwnStream back, std::shared_ptr<std::byte> staging);
  Result<void> find_words();
  Result<std::byte*> take_large(std::uint64_t place, std::size_t bytes);
  Address address_of(const std::atomic<std::uint32_t>& word) const;
  static constexpr std::size_t kWords = 1024;
  static constexpr std::size_t kSmallBytes = 4096;

  const std::shared_ptr<const Gpu> gpu_;
  const std::shared_ptr<farandole::Memory> memory_;
  const std::shared_ptr<EventPool> events_;
  const OwnStream out_, back_;
  const std::shared_ptr<std::byte> staging_;  // kWords Words, then the ring
  Words* const words_;
  Address words_address_ = 0;
  bool waits_on_device_ = false;
  std::mutex mutex_;  // held by a pass
  StagingRing ring_;
  std::vector<Large> large_;
};

}  // namespace farandole::cuda
