#include <gtest/gtest.h>

#include "espalier/error.hpp"
#include "espalier/parallel/pipeline.hpp"
#include "espalier/parallel/tensor.hpp"
#include "support/doubles/toy_model.hpp"

namespace espalier {
namespace {

TEST(SingleStage, AccumulatesThenReducesAndSteps) {
  const auto pipeline = make_single_stage();
  EXPECT_EQ(pipeline->stages(), 1);
  EXPECT_EQ(pipeline->chunks(), 1);
  const std::vector<Instruction> expected = {{Do::forward, 0, 0, 0},          {Do::backward, 0, 0, 0},
                                             {Do::forward, 1, 0, 0},          {Do::backward, 1, 0, 0},
                                             {Do::reduce_gradients, 0, 0, 0}, {Do::step, 0, 0, 0}};
  EXPECT_EQ(pipeline->schedule(Mode::train, 0, 2), expected);
  const std::vector<Instruction> forward_only = {{Do::forward, 0, 0, 0}, {Do::forward, 1, 0, 0}};
  EXPECT_EQ(pipeline->schedule(Mode::forward_only, 0, 2), forward_only);
  EXPECT_FALSE(pipeline->accepts(Mode::train, 1));
  EXPECT_TRUE(pipeline->accepts(Mode::train, 0));
}

TEST(SingleStage, HoldsAllLayers) {
  const auto pipeline = make_single_stage();
  const std::vector<double> cost(4, 1.0);
  EXPECT_EQ(pipeline->cut(cost), (std::vector<int>{0, 4}));
  EXPECT_THROW(pipeline->cut({}), ConfigError);
}

TEST(WholeTensors, BordersAreTheIdentity) {
  const auto tensor = make_whole_tensors();
  const auto device = make_cpu_device();
  Stream& stream = device->lane(Lane::tensor);
  float data[6] = {};
  const View x = View::matrix(data, 2, 3, DType::f32);
  for (Pass pass : {Pass::forward, Pass::backward}) {
    EXPECT_EQ(tensor->enter(x, {}, pass, stream).result.data, data);
    EXPECT_FALSE(tensor->leave(x, {}, pass, stream).request);
  }
  tensor->finish(tensor->reduce(x, Reduce::max, stream), stream);
  EXPECT_EQ(tensor->rows(17, Region::inside), 17);
  EXPECT_EQ(tensor->first_row(17), 0);
  for (const Parameter& parameter : testing_support::toy_parameters()) {
    const Placement place = tensor->place(parameter);
    EXPECT_EQ(place.local, parameter.shape);
    EXPECT_EQ(place.copies, Copies::whole);
    EXPECT_EQ(place.real_end, parameter.shape[0]);
  }
}

}  // namespace
}  // namespace espalier
