// SPDX-License-Identifier: Apache-2.0
//
// The same bytes every time: a thousand runs, eager and as a graph, on one stream and on two at once.
#include <cstdio>
#include <cstring>

#include "fixture.h"
#include "sha256.h"

namespace leapquant::cuda_test {
namespace {

using namespace conformance;  // NOLINT(google-build-using-namespace): the suite's own helpers

// What a flush writes.
constexpr lq_tensor lq_pool_tensors::*kOutputs[] = {&lq_pool_tensors::raw, &lq_pool_tensors::w, &lq_pool_tensors::gbuf,
                                                    &lq_pool_tensors::pcum};

// A pool that is filled and flushed again and again.
class Rig {
 public:
  Rig(const Context& context, const judge::FlushInputs& inputs)
      : pool_(filled_pool(context, inputs, inputs.batch + 1)),
        contents_(pool_.pool()),
        arguments_(kDevice, order(inputs.batch), inputs) {}

  const Stream& stream() const { return stream_; }

  void enqueue(cudaStream_t stream) const {
    contents_.restore(pool_.pool(), stream);
    pool_.pool().flush_inplace(arguments_.indices, arguments_.q0, stream);
  }

  std::vector<unsigned char> output() const {
    std::vector<unsigned char> bytes;
    for (const auto member : kOutputs) {
      pool_.download(member);
      const lq_tensor& tensor = pool_.host().*member;
      const auto* const first = static_cast<const unsigned char*>(tensor.data);
      bytes.insert(bytes.end(), first, first + tensor_bytes(tensor));
    }
    return bytes;
  }

  bool gave(const std::vector<unsigned char>& expected) const {
    size_t at = 0;
    for (const auto member : kOutputs) {
      pool_.download(member);
      const lq_tensor& tensor = pool_.host().*member;
      if (std::memcmp(tensor.data, expected.data() + at, tensor_bytes(tensor)) != 0) return false;
      at += tensor_bytes(tensor);
    }
    return at == expected.size();
  }

 private:
  static std::vector<int32_t> order(int64_t batch) {
    std::vector<int32_t> indices;
    for (int64_t slot = batch; slot > 0; --slot) indices.push_back(static_cast<int32_t>(slot));
    return indices;
  }

  MirroredPool pool_;
  Snapshot contents_;
  InplaceArguments arguments_;
  Stream stream_;
};

class RepeatTest : public DeviceTest {
 protected:
  // More programs than any device has blocks for at a time.
  void expect_the_same_bytes(int32_t rank, int runs) {
    const Context context("cuda");
    const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, geometry_of(32, rank), 17);
    const Rig one(context, inputs);
    const Rig other(context, inputs);
    one.enqueue(one.stream().get());
    const std::vector<unsigned char> expected = one.output();
    const std::string digest = sha256(expected);
    RecordProperty("sha256", digest);
    std::printf("  rank %d: sha256 %s\n", rank, digest.c_str());
    for (int run = 0; run < runs; ++run) {
      one.enqueue(one.stream().get());
      ASSERT_TRUE(one.gave(expected)) << "eager, run " << run;
    }
    for (int run = 0; run < runs; ++run) {
      for (const Rig* rig : {&one, &other}) rig->enqueue(rig->stream().get());
      for (const Rig* rig : {&one, &other}) ASSERT_TRUE(rig->gave(expected)) << "two streams, run " << run;
    }
    const Graph graph(one.stream(), [&](cudaStream_t stream) { one.enqueue(stream); });
    const Graph other_graph(other.stream(), [&](cudaStream_t stream) { other.enqueue(stream); });
    for (int run = 0; run < runs; ++run) {
      graph.launch(one.stream().get());
      ASSERT_TRUE(one.gave(expected)) << "graph, run " << run;
    }
    for (int run = 0; run < runs; ++run) {
      graph.launch(one.stream().get());
      other_graph.launch(other.stream().get());
      for (const Rig* rig : {&one, &other}) ASSERT_TRUE(rig->gave(expected)) << "two graphs, run " << run;
    }
  }
};

TEST_F(RepeatTest, AThousandRuns) { expect_the_same_bytes(4, repetitions(1000)); }

TEST_F(RepeatTest, OtherRanks) {
  for (const int32_t rank : {1, 2, 8}) expect_the_same_bytes(rank, repetitions(64));
}

// Needs no device.
TEST(Sha256, KnownDigests) {
  const auto digest = [](const std::string& text) {
    return sha256({reinterpret_cast<const unsigned char*>(text.data()), text.size()});
  };
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace leapquant::cuda_test
