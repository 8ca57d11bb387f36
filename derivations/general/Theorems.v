(* What the theorems assume beyond their stated hypotheses: Coq answers "Closed under the global context", nothing.
   The lemma has every theorem in its proof, and so assumes what any of them does. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads Paths Counts Sources Norms Orders Remainder Largest Unique Listing Layers Basis.

Lemma every_theorem : True.
Proof.
  (* Heads.v *)
  pose proof @identity_head_acts.
  pose proof @mixed_product.
  pose proof @head_in_three_steps.
  pose proof @concatenation_of_two.
  pose proof @concatenation_is_sum.
  pose proof @concatenated_layer_is_sum_of_heads.

  (* Paths.v *)
  pose proof @path_acts_by_its_heads.
  pose proof @stream_is_sum_over_paths.
  pose proof @stream_is_linear.
  pose proof @identity_head_is_the_residual.
  pose proof @logits_are_sum_over_paths.
  pose proof @scores_are_double_sum.
  pose proof @scores_from_tokens.
  pose proof @scores_in_four_families.
  pose proof @path_rows_sum_to_one.
  pose proof @path_is_causal.

  (* Counts.v *)
  pose proof @number_of_paths.
  pose proof @number_of_paths_of_order.
  pose proof @number_of_score_terms.
  pose proof @elementary_uniform.
  pose proof @elementary_is_coefficient.
  pose proof @elementary_is_sum_over_sets.

  (* Sources.v *)
  pose proof @stream_with_sources.
  pose proof @scores_with_sources.
  pose proof @number_of_terms.
  pose proof @value_bias_is_source.
  pose proof @biased_layer_has_sources.
  pose proof @bias_collapses.
  pose proof @query_and_key_biases.

  (* Norms.v *)
  pose proof @norm_folds_into_head.
  pose proof @centring_and_gain_fold.
  pose proof @norms_fold.
  pose proof @normed_stream_is_sum_over_paths.
  pose proof @normed_logits_are_sum_over_paths.
  pose proof @normed_scores_are_double_sum.
  pose proof @norm_commutes_where_scales_agree.
  pose proof @norm_side_matters.

  (* Orders.v *)
  pose proof @term_importance_truncates.
  pose proof @last_run_is_the_model.
  pose proof @ablation_takes_the_terms_through.

  (* Remainder.v *)
  pose proof @remainder_is_sum.
  pose proof @truncation_and_remainder.
  pose proof @weights_of_order.
  pose proof @truncation_bound.
  pose proof @head_bound.
  pose proof @largest_entry_of_a_path.

  (* Largest.v *)
  pose proof @pair_bound.
  pose proof @spectral_bound.
  pose proof @trace_of_the_smaller.
  pose proof @paths_into_add_up.
  pose proof @suffix_grows.
  pose proof @beta_bounds_every_path.
  pose proof @suffix_bounds_every_term.
  pose proof @moments_are_sums_over_paths.
  pose proof @mass_is_the_sum_of_squares.
  pose proof @mass_bounds_every_term.

  (* Unique.v *)
  pose proof @paths_are_distinct.
  pose proof @run_is_sum_of_its_terms.
  pose proof @term_is_alternating_sum.
  pose proof @no_term_without_path.
  pose proof @terms_are_unique.
  pose proof @logit_term_is_alternating_sum.
  pose proof @logit_terms_are_unique.
  pose proof @score_term_is_alternating_sum.
  pose proof @score_terms_are_unique.

  (* Listing.v *)
  pose proof @listing_has_every_path.
  pose proof @listing_has_no_path_twice.
  pose proof @listing_is_in_order.

  (* Layers.v *)
  pose proof @stream_is_sum_over_routes.
  pose proof @stream_is_sum_over_maps.
  pose proof @general_layer_is_maps.
  pose proof @general_stream_is_sum_over_routes.
  pose proof @turned_scores_of_sums.
  pose proof @only_distance_matters.
  pose proof @general_scores_are_double_sum.
  pose proof @softmax_sees_no_row_constant.
  pose proof @bias_keys_give_row_constants.

  (* Basis.v *)
  pose proof @new_OV.
  pose proof @new_QK.
  pose proof @stream_in_new_basis.
  pose proof @logit_terms_unchanged.
  pose proof @logits_unchanged.
  pose proof @score_terms_unchanged.
  pose proof @scores_unchanged.
  pose proof @OV_unchanged_inside.
  pose proof @QK_unchanged_inside.
  exact I.
Qed.

Print Assumptions every_theorem.
